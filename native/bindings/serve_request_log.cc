#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "bindings/options.h"
#include "serve/request_log/request_log.h"
#include "util/status.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace elasticctr {
namespace {

using serve::LoggedRequest;
using serve::RequestLog;
using serve::RequestLogOptions;

using DenseSlots = std::vector<std::pair<std::string, uint32_t>>;
using Bags = std::vector<std::pair<uint32_t, std::vector<uint64_t>>>;

// Checks what the writer requires.
LoggedRequest MakeRequest(const std::vector<std::string>& slots, const DenseSlots& dense_slots,
                          const std::vector<Bags>& rows, const std::vector<std::vector<float>>& dense,
                          const std::vector<std::vector<float>>& scores) {
  LoggedRequest request;
  serve::LoggedSlots names{slots, {}};
  for (const auto& [name, dim] : dense_slots) names.dense.push_back({name, dim});
  const uint32_t dense_dim = names.dense_dim();
  request.slots = std::make_shared<const serve::LoggedSlots>(std::move(names));
  for (const Bags& row : rows) {
    request.row_bags.push_back(static_cast<uint32_t>(row.size()));
    for (const auto& [slot, values] : row) {
      if (slot >= slots.size()) throw Error(Code::kData, "a row of a request names an unknown slot");
      request.bags.push_back({slot, static_cast<uint32_t>(values.size())});
      request.values.insert(request.values.end(), values.begin(), values.end());
    }
  }
  if (rows.empty() || scores.size() + 1 != rows.size() || (dense_dim > 0 && dense.size() != scores.size())) {
    throw Error(Code::kData, "a request needs a shared row, and a row and scores for each sample");
  }
  for (const auto& sample : dense) request.dense.insert(request.dense.end(), sample.begin(), sample.end());
  for (const auto& sample : scores) request.scores.insert(request.scores.end(), sample.begin(), sample.end());
  request.labels = static_cast<uint32_t>(scores.empty() ? 0 : scores[0].size());
  if (request.dense.size() != dense_dim * request.samples() ||
      request.scores.size() != request.labels * request.samples()) {
    throw Error(Code::kData, "samples of one request have different numbers of floats or scores");
  }
  return request;
}

}  // namespace

void BindServeRequestLog(nb::module_& m) {
  auto options = BindOptions<RequestLogOptions>(m, "RequestLogOptions");
  BindMember<&RequestLogOptions::directory>(options, "directory");
  BindMember<&RequestLogOptions::sample>(options, "sample");
  BindMember<&RequestLogOptions::max_bytes>(options, "max_bytes");
  BindMember<&RequestLogOptions::file_bytes>(options, "file_bytes");
  BindMember<&RequestLogOptions::file_s>(options, "file_s");
  BindMember<&RequestLogOptions::queue_bytes>(options, "queue_bytes");
  BindMember<&RequestLogOptions::body_bytes>(options, "body_bytes");
  nb::class_<RequestLog>(m, "RequestLog")
      .def(
          "__init__",
          [](RequestLog* self, std::string directory, const nb::kwargs& named) {
            RequestLogOptions options = OptionsFrom<RequestLogOptions>(named);
            options.directory = std::move(directory);
            nb::gil_scoped_release release;
            new (self) RequestLog(options);
          },
          "directory"_a, "options"_a, nb::sig("def __init__(self, directory: str, **options: Any) -> None"))
      .def(
          "takes", [](const RequestLog& self, const std::string& id) { return self.Takes(id); }, "id"_a)
      .def(
          "add",
          [](RequestLog& self, double time, std::string id, std::string model, uint64_t version, std::string variant,
             std::string protocol, nb::bytes body, const std::vector<std::string>& slots, const DenseSlots& dense_slots,
             const std::vector<Bags>& rows, const std::vector<std::vector<float>>& dense,
             const std::vector<std::vector<float>>& scores) {
            LoggedRequest request = MakeRequest(slots, dense_slots, rows, dense, scores);
            request.time = time;
            request.id = std::move(id);
            request.model = std::move(model);
            request.version = version;
            request.variant = std::move(variant);
            request.protocol = std::move(protocol);
            request.body_bytes = body.size();
            if (body.size() <= self.options().body_bytes) request.body.assign(body.c_str(), body.size());
            return self.Add(std::move(request));
          },
          "time"_a, "id"_a, "model"_a, "version"_a, "variant"_a, "protocol"_a, "body"_a, "slots"_a, "dense_slots"_a,
          "rows"_a, "dense"_a, "scores"_a)
      .def(
          "stop", [](RequestLog& self) { self.Stop(); }, nb::call_guard<nb::gil_scoped_release>())
      .def("metrics", &RequestLog::Metrics)
      .def_prop_ro("written", [](const RequestLog& self) { return self.stats().written.load(); })
      .def_prop_ro("dropped", [](const RequestLog& self) { return self.stats().dropped.load(); })
      .def_prop_ro("failed", [](const RequestLog& self) { return self.stats().failed.load(); })
      .def_prop_ro("removed", [](const RequestLog& self) { return self.stats().removed.load(); });
}

}  // namespace elasticctr
