#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>

#include <optional>

#include "bindings/bindings.h"
#include "bindings/metric_arrays.h"
#include "metric/binary_metrics.h"
#include "metric/exact_auc.h"
#include "metric/group_auc.h"
#include "util/status.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace elasticctr {
namespace {

using metric::BinaryMetrics;
using metric::GroupAuc;

template <typename T, void (T::*method)(const float*, const float*, const float*, size_t)>
void Update(T& self, Floats scores, Floats labels, std::optional<Floats> weights) {
  const float* w = CheckedWeights(scores.shape(0), labels, weights);
  nb::gil_scoped_release release;
  (self.*method)(scores.data(), labels.data(), w, scores.shape(0));
}

// Wraps a function that may take a while: runs it without the interpreter lock.
template <typename F>
std::string Freely(F make) {
  nb::gil_scoped_release release;
  return make();
}

void BindBinaryMetrics(nb::class_<BinaryMetrics>& type) {
  type.def(nb::init<>())
      .def("update", &Update<BinaryMetrics, &BinaryMetrics::Update>, "logits"_a, "labels"_a, "weights"_a = nb::none())
      .def("update_scores", &Update<BinaryMetrics, &BinaryMetrics::UpdateScores>, "scores"_a, "labels"_a,
           "weights"_a = nb::none())
      .def("merge", &BinaryMetrics::Merge, "other"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("reset", &BinaryMetrics::Reset, nb::call_guard<nb::gil_scoped_release>())
      .def("auc", &BinaryMetrics::Auc, nb::call_guard<nb::gil_scoped_release>())
      .def("auc_bound", &BinaryMetrics::AucBound, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "average_precision",
          [](const BinaryMetrics& self) {
            const metric::Bounded result = self.AveragePrecision();
            return nb::make_tuple(result.value, result.bound);
          },
          nb::sig("def average_precision(self) -> tuple[float, float]"), "(value, how far off it can be)")
      .def(
          "calibration_error",
          [](const BinaryMetrics& self, size_t bins, bool equal_weight) {
            if (bins < 1) throw Error(Code::kConfig, "calibration needs at least one bin");
            return self.CalibrationError(bins, equal_weight);
          },
          "bins"_a, "equal_weight"_a)
      .def_prop_ro("samples", [](const BinaryMetrics& self) { return self.totals().samples; })
      .def_prop_ro("invalid_scores", [](const BinaryMetrics& self) { return self.totals().invalid_scores; })
      .def_prop_ro("invalid_labels", [](const BinaryMetrics& self) { return self.totals().invalid_labels; })
      .def_prop_ro("positive", [](const BinaryMetrics& self) { return self.totals().positive / metric::kWeightOne; })
      .def_prop_ro("negative", [](const BinaryMetrics& self) { return self.totals().negative / metric::kWeightOne; })
      .def_prop_ro("loss_sum", [](const BinaryMetrics& self) { return Unscale(self.totals().loss); })
      .def_prop_ro("predicted_sum", [](const BinaryMetrics& self) { return Unscale(self.totals().predicted); })
      .def(
          "roc",
          [](const BinaryMetrics& self, size_t max_points) {
            std::vector<double> flat;
            for (const auto& [x, y] : self.Roc(max_points)) flat.insert(flat.end(), {x, y});
            return ToRows(flat, 2);
          },
          "max_points"_a)
      .def(
          "calibration",
          [](const BinaryMetrics& self, size_t bins, bool equal_weight) {
            if (bins < 1) throw Error(Code::kConfig, "calibration needs at least one bin");
            std::vector<double> flat;
            for (const auto& row : self.Calibration(bins, equal_weight)) {
              flat.insert(flat.end(), {row.lower, row.upper, row.weight, row.positive, row.predicted});
            }
            return ToRows(flat, 5);
          },
          "bins"_a, "equal_weight"_a)
      .def("state", [](const BinaryMetrics& self) { return ToBytes(Freely([&] { return self.State(); })); })
      .def(
          "take", [](BinaryMetrics& self) { return ToBytes(Freely([&] { return self.Take(); })); },
          "`state`, and begins anew");
}

void BindBinaryState(nb::class_<BinaryMetrics>& type) {
  type.def(
          "restore", [](BinaryMetrics& self, nb::bytes state) { self.Restore({state.c_str(), state.size()}); },
          "state"_a)
      .def(
          "merge_state", [](BinaryMetrics& self, nb::bytes state) { self.MergeState({state.c_str(), state.size()}); },
          "state"_a, "adds a saved state")
      .def_static(
          "check_state", [](nb::bytes state) { BinaryMetrics::CheckState({state.c_str(), state.size()}); }, "state"_a,
          "raises what `restore` would");
}

void BindGroupAuc(nb::class_<GroupAuc>& type) {
  type.def(nb::init<>())
      .def(
          "update",
          [](GroupAuc& self, Groups groups, Floats scores, Floats labels, std::optional<Floats> weights) {
            const float* w = CheckedWeights(groups.shape(0), labels, weights);
            CheckedWeights(groups.shape(0), scores, std::nullopt);
            nb::gil_scoped_release release;
            self.Update(groups.data(), scores.data(), labels.data(), w, groups.shape(0));
          },
          "groups"_a, "scores"_a, "labels"_a, "weights"_a = nb::none())
      .def("merge", &GroupAuc::Merge, "other"_a, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "compute",
          [](const GroupAuc& self) {
            metric::GroupedAuc result;
            {
              nb::gil_scoped_release release;
              result = self.Compute();
            }
            return nb::make_tuple(result.auc, result.groups, result.skipped, result.impressions, result.invalid);
          },
          nb::sig("def compute(self) -> tuple[float, int, int, float, int]"),
          "(auc, groups counted, groups of one class, impressions counted, invalid samples)")
      .def(
          "rank",
          [](const GroupAuc& self, size_t k) {
            if (k < 1) throw Error(Code::kConfig, "a ranking is of the first 1 or more; 0 was asked for");
            metric::GroupedRanking result;
            {
              nb::gil_scoped_release release;
              result = self.Rank(k);
            }
            return nb::make_tuple(result.ndcg, result.recall, result.groups, result.skipped);
          },
          "k"_a, nb::sig("def rank(self, k: int) -> tuple[float, float, int, int]"),
          "(ndcg, recall, groups counted, groups without a positive)");
}

void BindGroupState(nb::class_<GroupAuc>& type) {
  type.def(
          "rows",
          [](const GroupAuc& self, uint64_t min_samples) {
            std::vector<metric::GroupRow> rows;
            {
              nb::gil_scoped_release release;
              rows = self.Rows(min_samples);
            }
            std::vector<uint64_t> groups;
            std::vector<double> flat;
            for (const auto& row : rows) {
              groups.push_back(row.group);
              flat.insert(flat.end(),
                          {static_cast<double>(row.samples), row.weight, row.positive, row.auc, row.deviation});
            }
            return nb::make_tuple(ToFeasigns(groups), ToRows(flat, 5));
          },
          "min_samples"_a,
          nb::sig("def rows(self, min_samples: int) -> tuple[numpy.typing.NDArray[numpy.uint64], "
                  "numpy.typing.NDArray[numpy.float64]]"),
          "groups, and for each: samples, weight, positive weight, auc, its standard deviation")
      .def_prop_ro("samples", &GroupAuc::samples)
      .def("state", [](const GroupAuc& self) { return ToBytes(self.State()); })
      .def("restore", [](GroupAuc& self, nb::bytes state) { self.Restore({state.c_str(), state.size()}); }, "state"_a);
}

}  // namespace

void BindMetric(nb::module_& m) {
  nb::class_<BinaryMetrics> binary(m, "BinaryMetrics");
  BindBinaryMetrics(binary);
  BindBinaryState(binary);

  nb::class_<GroupAuc> group(m, "GroupAuc");
  BindGroupAuc(group);
  BindGroupState(group);

  m.def(
      "exact_auc",
      [](Floats scores, Floats labels, std::optional<Floats> weights) {
        const float* w = CheckedWeights(scores.shape(0), labels, weights);
        uint64_t invalid = 0;
        nb::gil_scoped_release release;
        return metric::ExactAuc(scores.data(), labels.data(), w, scores.shape(0), &invalid);
      },
      "scores"_a, "labels"_a, "weights"_a = nb::none());
}

}  // namespace elasticctr
