#include <nanobind/stl/optional.h>

#include "bindings/bindings.h"
#include "bindings/metric_arrays.h"
#include "metric/bootstrap.h"
#include "metric/segment_metrics.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace elasticctr {
namespace {

using metric::Bootstrap;
using metric::SegmentMetrics;

void CheckOffsets(const Offsets& offsets, size_t n, size_t values) {
  bool ok = offsets.shape(0) == n + 1 && offsets(0) >= 0 && static_cast<size_t>(offsets(n)) <= values;
  for (size_t i = 0; ok && i < n; ++i) ok = offsets(i) <= offsets(i + 1);
  if (!ok) {
    throw Error(Code::kFailedPrecondition,
                "offsets must rise from 0 to the number of values, one more of them than there are scores");
  }
}

Rows RowsOf(const std::vector<metric::Replicate>& replicates) {
  std::vector<double> flat;
  for (const auto& r : replicates) flat.insert(flat.end(), {r.auc, r.logloss, r.other_auc, r.other_logloss});
  return ToRows(flat, 4);
}

void BindSegmentMetrics(nb::class_<SegmentMetrics>& type) {
  type.def(
          "__init__",
          [](SegmentMetrics* self, size_t max_values) {
            if (max_values < 1) throw Error(Code::kConfig, "segment metrics must be allowed one value at least");
            new (self) SegmentMetrics(max_values);
          },
          "max_values"_a)
      .def(
          "update",
          [](SegmentMetrics& self, Groups values, Offsets offsets, Floats logits, Floats labels,
             std::optional<Floats> weights) {
            const size_t n = logits.shape(0);
            const float* w = CheckedWeights(n, labels, weights);
            CheckOffsets(offsets, n, values.shape(0));
            nb::gil_scoped_release release;
            self.Update(values.data(), offsets.data(), logits.data(), labels.data(), w, n);
          },
          "values"_a, "offsets"_a, "logits"_a, "labels"_a, "weights"_a = nb::none())
      .def("merge", &SegmentMetrics::Merge, "other"_a, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "rows",
          [](const SegmentMetrics& self) {
            std::vector<uint64_t> values;
            std::vector<double> flat;
            {
              nb::gil_scoped_release release;
              for (const auto& [value, sums] : self.Rows()) {
                values.push_back(value);
                flat.insert(flat.end(), {static_cast<double>(sums.samples), Unscale(sums.weight, metric::kWeightBits),
                                         Unscale(sums.positive, metric::kWeightBits), Unscale(sums.predicted),
                                         Unscale(sums.loss), Unscale(sums.square_weight, metric::kWeightBits),
                                         Unscale(sums.square_loss, metric::kWeightBits),
                                         Unscale(sums.square_square, metric::kWeightBits)});
              }
            }
            return nb::make_tuple(ToFeasigns(values), ToRows(flat, 8));
          },
          nb::sig("def rows(self) -> tuple[numpy.typing.NDArray[numpy.uint64], numpy.typing.NDArray[numpy.float64]]"),
          "values, and for each: samples, then sums of weight (w), w y, w p, w loss, w^2, w^2 loss, w^2 loss^2")
      .def_prop_ro("level", &SegmentMetrics::level)
      .def_prop_ro("samples", &SegmentMetrics::samples)
      .def_prop_ro("invalid", &SegmentMetrics::invalid)
      .def("state", [](const SegmentMetrics& self) { return ToBytes(self.State()); })
      .def(
          "restore", [](SegmentMetrics& self, nb::bytes state) { self.Restore({state.c_str(), state.size()}); },
          "state"_a);
}

void BindBootstrap(nb::class_<Bootstrap>& type) {
  type.def(nb::init<bool>(), "is_paired"_a = false)
      .def(
          "update",
          [](Bootstrap& self, Floats logits, Floats labels, std::optional<Floats> weights,
             std::optional<Floats> others) {
            const float* w = CheckedWeights(logits.shape(0), labels, weights);
            if (others) CheckedWeights(logits.shape(0), *others, std::nullopt);
            nb::gil_scoped_release release;
            self.Update(logits.data(), others ? others->data() : nullptr, labels.data(), w, logits.shape(0));
          },
          "logits"_a, "labels"_a, "weights"_a = nb::none(), "others"_a = nb::none())
      .def("merge", &Bootstrap::Merge, "other"_a, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "estimate",
          [](const Bootstrap& self) {
            metric::Replicate result;
            {
              nb::gil_scoped_release release;
              result = self.Estimate();
            }
            return RowsOf({result});
          },
          "auc, logloss, and the second model's")
      .def(
          "draw",
          [](const Bootstrap& self, size_t replicates, uint64_t seed) {
            std::vector<metric::Replicate> results;
            {
              nb::gil_scoped_release release;
              results = self.Draw(replicates, seed);
            }
            return RowsOf(results);
          },
          "replicates"_a, "seed"_a, "for each replicate: auc, logloss, and the second model's")
      .def_prop_ro("is_paired", &Bootstrap::is_paired)
      .def_prop_ro("samples", &Bootstrap::samples)
      .def_prop_ro("invalid", &Bootstrap::invalid)
      .def("state", [](const Bootstrap& self) { return ToBytes(self.State()); })
      .def("restore", [](Bootstrap& self, nb::bytes state) { self.Restore({state.c_str(), state.size()}); }, "state"_a);
}

}  // namespace

void BindMetricSegments(nb::module_& m) {
  nb::class_<SegmentMetrics> segments(m, "SegmentMetrics");
  BindSegmentMetrics(segments);

  nb::class_<Bootstrap> bootstrap(m, "Bootstrap");
  BindBootstrap(bootstrap);
}

}  // namespace elasticctr
