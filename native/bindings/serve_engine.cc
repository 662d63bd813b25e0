#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "bindings/bindings.h"
#include "cube/client/client.h"
#include "cube/server/store.h"
#include "net/socket.h"
#include "serve/engine/reasons.h"
#include "serve/onnx/runtime.h"
#include "serve/onnx/shared_layer.h"
#include "serve/version/rows_cube.h"
#include "serve/version/rows_local.h"
#include "serve/version/version.h"
#include "util/status.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace elasticctr {
namespace {

using namespace serve;

using Values = nb::ndarray<const uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Offsets = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using PieceTuple = std::tuple<uint32_t, uint32_t, uint32_t>;  // row, dim, column

// Samples as arrays: data/batch.py has the layout.
struct Arrays {
  Values values;
  Offsets offsets;
  Floats dense;

  size_t size() const { return dense.shape(0); }
  void Check(const Plan& plan) const {
    const size_t slots = plan.spec.sparse.size(), n = size();
    bool is_good = dense.shape(1) == plan.spec.dense_dim() && offsets.size() == slots * n + 1 && offsets(0) == 0;
    for (size_t i = 0; is_good && i + 1 < offsets.size(); ++i) is_good = offsets(i) <= offsets(i + 1);
    if (!is_good || static_cast<size_t>(offsets(slots * n)) != values.size()) {
      throw Error(Code::kData, "arrays of a batch that is not of the model's schema");
    }
  }
  void Add(const Plan& plan, size_t i, Samples* samples) const {
    for (uint32_t slot = 0; slot < plan.spec.sparse.size(); ++slot) {
      const auto end = static_cast<size_t>(offsets(slot * size() + i + 1));
      for (auto at = static_cast<size_t>(offsets(slot * size() + i)); at < end; ++at) {
        samples->AddFeasign(slot, values(at));
      }
    }
    const float* from = dense.data() + i * dense.shape(1);
    for (uint32_t slot = 0; slot < plan.spec.dense.size(); ++slot) {
      for (uint32_t k = 0; k < plan.spec.dense[slot].dim; ++k) samples->SetDense(slot, k, *from++);
    }
  }
};

// The result of one request of a batch.
nb::tuple Scored(const ServedVersion& version, const Samples& samples, size_t request,
                 const ServedVersion::Result& result) {
  const auto [first, n] = samples.request(request);
  const size_t labels = version.plan().labels.size();
  auto* scores = new float[n * labels];
  nb::capsule owner(scores, [](void* p) noexcept { delete[] static_cast<float*>(p); });
  std::copy_n(result.scores.data() + first * labels, n * labels, scores);
  const Coverage& coverage = result.coverage[request];
  return nb::make_tuple(nb::ndarray<nb::numpy, float, nb::ndim<2>>(scores, {n, labels}, owner), coverage.asked,
                        coverage.found, nb::cast(ReasonsOf(coverage)), result.is_split);
}

// Scores in one batch the requests that the functions of `fill` add, one each.
template <typename Fill>
std::vector<nb::tuple> Score(const ServedVersion& version, uint32_t timeout_ms, const std::vector<Fill>& fill) {
  Samples samples;
  ServedVersion::Result result;
  {
    nb::gil_scoped_release release;
    samples.Reset(&version.plan());
    for (const Fill& one : fill) {
      samples.BeginRequest();
      one(&samples);
      samples.EndRequest();
    }
    Workspace workspace;
    const uint64_t deadline = timeout_ms > 0 ? net::NowNs() + uint64_t{timeout_ms} * 1'000'000 : 0;
    version.Score(samples, &workspace, deadline, &result);
  }
  std::vector<nb::tuple> scored;
  for (size_t i = 0; i < fill.size(); ++i) scored.push_back(Scored(version, samples, i, result));
  return scored;
}

using ArraysTuple = std::tuple<Values, Offsets, Floats>;

// The samples of a request, and what they share.
auto FillArrays(const Plan& plan, const ArraysTuple& of_samples, const std::optional<ArraysTuple>& shared) {
  const auto check = [&](const ArraysTuple& tuple) {
    const Arrays arrays{std::get<0>(tuple), std::get<1>(tuple), std::get<2>(tuple)};
    arrays.Check(plan);
    return arrays;
  };
  const Arrays samples = check(of_samples);
  std::optional<Arrays> user;
  if (shared) user = check(*shared);
  if (user && user->size() != 1) throw Error(Code::kData, "shared values are those of one sample");
  return [&plan, samples, user](Samples* to) {
    if (user) user->Add(plan, 0, to);
    for (size_t i = 0; i < samples.size(); ++i) {
      to->BeginSample();
      samples.Add(plan, i, to);
    }
  };
}

std::vector<nb::tuple> ScoreRequests(const ServedVersion& self,
                                     const std::vector<std::pair<ArraysTuple, std::optional<ArraysTuple>>>& requests,
                                     uint32_t timeout_ms) {
  std::vector<decltype(FillArrays(self.plan(), requests[0].first, requests[0].second))> fill;
  for (const auto& [samples, shared] : requests) fill.push_back(FillArrays(self.plan(), samples, shared));
  return Score(self, timeout_ms, fill);
}

nb::tuple ScoreBatch(const ServedVersion& self, Values values, Offsets offsets, Floats dense, uint32_t timeout_ms,
                     std::optional<ArraysTuple> shared) {
  return ScoreRequests(self, {{{values, offsets, dense}, shared}}, timeout_ms)[0];
}

void BindPlan(nb::module_& m) {
  nb::class_<SparsePlan>(m, "ServeSlot")
      .def(
          "__init__",
          [](SparsePlan* self, std::optional<uint32_t> table, const std::string& pooling,
             const std::vector<PieceTuple>& pieces, uint32_t row, uint32_t dim, uint32_t max_values, std::string input,
             std::string lengths, bool is_typed, std::optional<uint64_t> oov) {
            SparsePlan plan;
            plan.table = table.value_or(SparsePlan::kUnused);
            plan.pooling = pooling == "mean" ? Pooling::kMean : pooling == "none" ? Pooling::kNone : Pooling::kSum;
            for (const auto& [from, size, column] : pieces) plan.pieces.push_back({from, size, column});
            plan.row = row;
            plan.dim = dim;
            plan.max_values = max_values;
            plan.input = std::move(input);
            plan.lengths = std::move(lengths);
            plan.is_typed = is_typed;
            plan.oov = oov;
            new (self) SparsePlan(std::move(plan));
          },
          nb::kw_only(), "table"_a.none() = nb::none(), "pooling"_a = "sum", "pieces"_a = std::vector<PieceTuple>(),
          "row"_a = 0, "dim"_a = 0, "max_values"_a = 0, "input"_a = "", "lengths"_a = "", "is_typed"_a = false,
          "oov"_a.none() = nb::none());
  nb::class_<Plan>(m, "ServePlan")
      .def(
          "__init__",
          [](Plan* self, const ParserSpec& spec, std::vector<SparsePlan> sparse, std::vector<uint32_t> dense_columns,
             const std::vector<std::pair<std::string, uint32_t>>& tables, std::vector<std::string> labels,
             uint32_t pooled_width, uint32_t dense_width,
             const std::vector<std::pair<std::string, std::string>>& paddle_feeds, const Deriver& derived) {
            Plan plan;
            plan.spec = spec;
            plan.derived = derived;
            plan.sparse = std::move(sparse);
            plan.dense_columns = std::move(dense_columns);
            for (const auto& [name, dim] : tables) plan.tables.push_back({name, dim});
            plan.labels = std::move(labels);
            plan.pooled_width = pooled_width;
            plan.dense_width = dense_width;
            plan.paddle_feeds.insert(paddle_feeds.begin(), paddle_feeds.end());
            plan.Seal();
            new (self) Plan(std::move(plan));
          },
          nb::kw_only(), "spec"_a, "sparse"_a, "dense_columns"_a, "tables"_a, "labels"_a, "pooled_width"_a,
          "dense_width"_a, "paddle_feeds"_a = std::vector<std::pair<std::string, std::string>>(),
          "derived"_a = Deriver());
  nb::class_<Policy>(m, "ServePolicy")
      .def(
          "__init__",
          [](Policy* self, bool fails_on_missing, double min_coverage, bool fails_on_dead_shard,
             bool fails_on_late_cube, uint32_t cube_timeout_ms) {
            new (self) Policy{fails_on_missing, min_coverage, fails_on_dead_shard, fails_on_late_cube, cube_timeout_ms};
          },
          nb::kw_only(), "fails_on_missing"_a = false, "min_coverage"_a = 0.0, "fails_on_dead_shard"_a = true,
          "fails_on_late_cube"_a = true, "cube_timeout_ms"_a = 200);
}

void BindVersion(nb::module_& m) {
  nb::class_<ServedVersion>(m, "ServedVersion")
      .def(
          "__init__",
          [](ServedVersion* self, std::string model, uint64_t version, const Plan& plan, const std::string& rows_model,
             const std::vector<const cube::Store*>& stores, std::vector<std::shared_ptr<cube::Client>> clients,
             nb::bytes onnx, const std::string& library, const Policy& policy, const std::string& where,
             const std::string& whole_because) {
            nb::gil_scoped_release release;
            auto rows = stores.empty() ? MakeCubeRows(std::move(clients), rows_model, version, plan.tables, policy)
                                       : MakeLocalRows(stores, rows_model, version, plan.tables);
            const std::string_view bytes(onnx.c_str(), onnx.size());
            auto graph = OpenOnnx(library, bytes, where);
            auto shared = whole_because.empty() ? OpenSharedLayer(library, bytes, plan, *graph, where)
                                                : SharedLayerResult(nullptr, whole_because);
            new (self) ServedVersion(std::move(model), version, plan, std::move(rows), std::move(graph), policy,
                                     std::move(shared));
          },
          nb::kw_only(), "model"_a, "version"_a, "plan"_a, "rows_model"_a,
          "stores"_a = std::vector<const cube::Store*>(), "clients"_a = std::vector<std::shared_ptr<cube::Client>>(),
          "onnx"_a, "library"_a, "policy"_a, "where"_a, "whole_because"_a = "",
          "Rows from the stores of all shards, or from the client of each table. `whole_because`: why the graph is not "
          "to "
          "be cut behind its first layer.")
      .def_prop_ro("model", &ServedVersion::model)
      .def_prop_ro("version", &ServedVersion::version)
      .def_prop_ro("why_whole", &ServedVersion::why_whole,
                   "Why what candidates share goes through the first layer once for each; empty: once per request.")
      .def_prop_ro("labels", [](const ServedVersion& self) { return self.plan().labels; })
      .def("score_batch", &ScoreBatch, "values"_a, "offsets"_a, "dense"_a, "timeout_ms"_a = 0,
           "shared"_a.none() = nb::none(),
           "Scores [n, labels], rows asked for, rows found, what was degraded, and whether what samples share went "
           "through the first layer once.")
      .def("score_requests", &ScoreRequests, "requests"_a, "timeout_ms"_a = 0,
           "As score_batch, of several requests in one batch: (values, offsets, dense) and what is shared.")
      .def(
          "score_lines",
          [](const ServedVersion& self, nb::bytes text, std::optional<TextFormat> format, uint32_t timeout_ms) {
            const std::string_view lines(text.c_str(), text.size());
            const auto fill = [&](Samples* to) { to->AddLines(format.value_or(self.plan().spec.format), lines); };
            return Score(self, timeout_ms, std::vector{fill})[0];
          },
          "text"_a, "format"_a.none() = nb::none(), "timeout_ms"_a = 0);
}

}  // namespace

void BindServeEngine(nb::module_& m) {
  BindPlan(m);
  BindVersion(m);
}

}  // namespace elasticctr
