#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "bindings/options.h"
#include "net/http/site.h"
#include "serve/service.h"
#include "serve/version/version.h"
#include "util/status_table.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace elasticctr {
namespace {

using serve::Service;

// name, weight, whether it is a shadow, version
using VariantTuple = std::tuple<std::string, double, bool, std::shared_ptr<serve::ServedVersion>>;
// name, sticky field, its seed, whether it answers Paddle calls that name no model, variants
using ModelTuple = std::tuple<std::string, std::string, uint64_t, bool, std::vector<VariantTuple>>;

void SetModels(Service& self, const std::vector<ModelTuple>& given) {
  std::vector<serve::Model> models;
  for (const auto& [name, sticky, seed, paddle_default, variants] : given) {
    serve::Model model;
    model.name = name;
    model.sticky_field = sticky;
    model.sticky_seed = seed;
    model.paddle_default = paddle_default;
    for (const auto& [variant, weight, is_shadow, version] : variants) {
      model.variants.push_back({variant, weight, is_shadow, version, nullptr});
    }
    models.push_back(std::move(model));
  }
  nb::gil_scoped_release release;
  self.SetModels(std::move(models));
}

nb::object NextControl(Service& self, double timeout_s) {
  serve::ControlRequest request;
  bool came = false;
  {
    nb::gil_scoped_release release;
    came = self.control().Next(timeout_s, &request);
  }
  if (!came) return nb::none();
  return nb::make_tuple(request.id, nb::bytes(request.method.data(), request.method.size()),
                        nb::bytes(request.path.data(), request.path.size()),
                        nb::bytes(request.query.data(), request.query.size()),
                        nb::bytes(request.authorization.data(), request.authorization.size()),
                        nb::bytes(request.body.data(), request.body.size()));
}

nb::bytes Call(Service& self, const std::string& codec, nb::bytes body, const std::string& model,
               const std::string& version, uint32_t timeout_ms, const std::string& id, const std::string& peer) {
  auto request = std::make_unique<serve::Request>();
  request->codec = serve::FindCodec(codec);
  if (request->codec == nullptr) throw Error(Code::kNotFound, "no codec is called " + codec);
  request->body.assign(body.c_str(), body.size());
  request->model = model;
  request->version = version;
  request->id = id;
  request->peer = peer;
  std::string answer;
  {
    nb::gil_scoped_release release;
    answer = self.Call(std::move(request), timeout_ms);
  }
  return nb::bytes(answer.data(), answer.size());
}

void BindServiceOptions(nb::module_& m) {
  using namespace serve;
  auto options = BindOptions<ServiceOptions>(m, "PredictServiceOptions");
  BindNetOptions<&ServiceOptions::net>(options);
  BindMember<&ServiceOptions::net, &net::ServerOptions::threads>(options, "loops");
  BindMember<&ServiceOptions::engine, &EngineOptions::workers>(options, "workers");
  BindMember<&ServiceOptions::engine, &EngineOptions::batch_samples>(options, "batch_samples");
  BindMember<&ServiceOptions::engine, &EngineOptions::batch_wait_us>(options, "batch_wait_us");
  BindMember<&ServiceOptions::engine, &EngineOptions::queue_requests>(options, "queue_requests");
  BindMember<&ServiceOptions::engine, &EngineOptions::queue_ms>(options, "queue_ms");
  BindMember<&ServiceOptions::engine, &EngineOptions::timeout_ms>(options, "timeout_ms");
  BindMember<&ServiceOptions::engine, &EngineOptions::limits, &Limits::body_bytes>(options, "body_bytes");
  BindMember<&ServiceOptions::engine, &EngineOptions::limits, &Limits::samples>(options, "samples");
  BindMember<&ServiceOptions::engine, &EngineOptions::limits, &Limits::values>(options, "values");
  BindMember<&ServiceOptions::token>(options, "token");
  BindMember<&ServiceOptions::read_token>(options, "read_token");
  BindMember<&ServiceOptions::access_log, &AccessLogOptions::path>(options, "access_log");
  BindMember<&ServiceOptions::request_log>(options, "request_log");
}

}  // namespace

void BindServeServer(nb::module_& m) {
  m.def(
      "grpc_status", [](int code) { return StatusOf(static_cast<Code>(code)).grpc; }, "code"_a,
      "The number gRPC has for an error.");
  m.def(
      "http_status", [](int code) { return StatusOf(static_cast<Code>(code)).http; }, "code"_a,
      "The HTTP status of an error code (ElasticCTRError.exit_status).");
  m.def(
      "check_site",
      [](std::string method, std::string host, std::string origin, std::string content_type,
         const std::string& own_host) -> std::optional<std::pair<int, std::string>> {
        net::HttpRequest request;
        request.method = std::move(method);
        request.host = std::move(host);
        request.origin = std::move(origin);
        request.content_type = std::move(content_type);
        auto refusal = net::CheckSite(request, own_host);
        if (!refusal) return std::nullopt;
        return std::pair(refusal->status, refusal->why);
      },
      nb::kw_only(), "method"_a, "host"_a, "origin"_a, "content_type"_a, "own_host"_a,
      "Why a server without a token must not answer this: HTTP status and sentence. None: it may.");
  BindServiceOptions(m);
  nb::class_<Service> server(m, "PredictServer");
  BindServer<serve::ServiceOptions>(server)
      .def("set_models", &SetModels, "models"_a)
      .def("set_ready", &Service::SetReady, "is_ready"_a, "why"_a)
      .def("next_control", &NextControl, "timeout_s"_a,
           nb::sig("def next_control(self, timeout_s: float) -> tuple[int, bytes, bytes, bytes, bytes, bytes] | None"),
           "id, method, path, query, authorization, body")
      .def(
          "answer_control",
          [](Service& self, uint64_t id, int status, const std::string& content_type, nb::bytes body,
             const std::string& headers) {
            std::string copy(body.c_str(), body.size());
            nb::gil_scoped_release release;
            self.control().Answer(id, status, content_type, copy, headers);
          },
          "id"_a, "status"_a, "content_type"_a, "body"_a, "headers"_a = "")
      .def("call", &Call, "codec"_a, "body"_a, "model"_a = "", "version"_a = "", "timeout_ms"_a = 0, "id"_a = "",
           "peer"_a = "")
      .def("matches", &Service::Matches, "token"_a, "Whether this is the server's token; true if it has none.")
      .def("metrics", &Service::MetricsText, nb::call_guard<nb::gil_scoped_release>())
      .def("set_extra_metrics", &Service::SetExtraMetrics, "text"_a)
      .def_prop_ro("ports", [](const Service& self) { return self.ports(); })
      .def_prop_ro("queued", &Service::queued)
      .def_prop_ro("connections", &Service::connections);
}

}  // namespace elasticctr
