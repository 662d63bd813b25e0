#include "table/table.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "util/status.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace elasticctr {
namespace {

using Counts = nb::ndarray<const uint32_t, nb::shape<-1>, nb::c_contig, nb::device::cpu>;
using FloatColumn = nb::ndarray<const float, nb::shape<-1>, nb::c_contig, nb::device::cpu>;
using Gradients = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <typename Array>
auto CheckedData(const Array& array, size_t feasigns, const char* name) {
  if (array.shape(0) != feasigns) {
    throw Error(Code::kFailedPrecondition, std::string(name) + " has " + std::to_string(array.shape(0)) +
                                               " values for " + std::to_string(feasigns) + " feasigns");
  }
  return array.data();
}

template <typename Array>
void CheckLength(const std::optional<Array>& array, size_t feasigns, const char* name) {
  if (array) CheckedData(*array, feasigns, name);
}

RowGradients ToRowGradients(const Table& table, const Feasigns& feasigns, const Gradients& gradients) {
  const size_t dim = table.layout().weights_dim();
  const float* data = CheckedData(gradients, feasigns.size(), "gradients");
  if (gradients.shape(1) != dim) {
    throw Error(Code::kFailedPrecondition,
                "gradients of " + std::to_string(gradients.shape(1)) + " weights for rows of " + std::to_string(dim));
  }
  RowGradients push;
  push.feasigns = {feasigns.data(), feasigns.size()};
  push.fill = [data, dim](size_t first, size_t count, float* out) {
    std::memcpy(out, data + first * dim, count * dim * sizeof(float));
  };
  return push;
}

Numpy<float> CounterArray(const std::vector<Counters>& counters, float Counters::* field) {
  std::vector<float> values;
  for (const Counters& c : counters) values.push_back(c.*field);
  const size_t size = values.size();
  return MoveToNumpy(std::move(values), {size});
}

Numpy<uint32_t> LastSeenArray(const std::vector<Counters>& counters) {
  std::vector<uint32_t> values;
  for (const Counters& c : counters) values.push_back(c.last_seen);
  const size_t size = values.size();
  return MoveToNumpy(std::move(values), {size});
}

void BindLookup(nb::module_& m) {
  nb::class_<Lookup>(m, "Lookup")
      .def(
          "__init__",
          [](Lookup* self, Feasigns values, Offsets offsets, size_t samples, const std::vector<uint32_t>& slots) {
            nb::gil_scoped_release release;
            new (self) Lookup({values.data(), values.size()}, {offsets.data(), offsets.size()}, samples, slots);
          },
          "values"_a, "offsets"_a, "samples"_a, "slots"_a)
      .def_prop_ro("samples", &Lookup::samples)
      .def_prop_ro("slots", &Lookup::slots)
      .def_prop_ro("occurrences", &Lookup::occurrences)
      .def_prop_ro("distinct", &Lookup::distinct)
      .def_prop_ro("is_single_valued", &Lookup::is_single_valued)
      .def_prop_ro(
          "feasigns",
          [](const Lookup& self) {
            return MoveToNumpy(std::vector<uint64_t>(self.feasigns(), self.feasigns() + self.distinct()),
                               {self.distinct()});
          },
          nb::rv_policy::move)
      .def_prop_ro(
          "inverse",
          [](const Lookup& self) {
            return MoveToNumpy(std::vector<uint32_t>(self.inverse(), self.inverse() + self.occurrences()),
                               {self.occurrences()});
          },
          nb::rv_policy::move)
      .def_prop_ro(
          "starts",
          [](const Lookup& self) {
            return MoveToNumpy(std::vector<uint32_t>(self.starts(), self.starts() + self.distinct() + 1),
                               {self.distinct() + 1});
          },
          nb::rv_policy::move)
      .def_prop_ro(
          "order",
          [](const Lookup& self) {
            return MoveToNumpy(std::vector<uint32_t>(self.order(), self.order() + self.occurrences()),
                               {self.occurrences()});
          },
          nb::rv_policy::move)
      .def(
          "lengths",
          [](const Lookup& self, size_t position, int64_t limit) {
            if (position >= self.slots()) throw Error(Code::kFailedPrecondition, "the lookup has no such slot");
            auto lengths = NewNumpy<int64_t>({self.samples()});
            for (size_t i = 0; i < self.samples(); ++i) {
              lengths.data()[i] = std::min<int64_t>(self.BagSize(position * self.samples() + i), limit);
            }
            return lengths;
          },
          "position"_a, "limit"_a = int64_t{1} << 40);
}

void BindLayout(nb::module_& m) {
  nb::enum_<PoolingKind>(m, "PoolingKind")
      .value("sum", PoolingKind::kSum)
      .value("mean", PoolingKind::kMean)
      .value("first", PoolingKind::kFirst)
      .value("last", PoolingKind::kLast);
  nb::class_<SlotTarget>(m, "SlotTarget")
      .def(
          "__init__",
          [](SlotTarget* self, uint32_t slot, uint32_t target, PoolingKind pooling, std::vector<int32_t> columns,
             uint32_t length) { new (self) SlotTarget{slot, target, pooling, std::move(columns), length}; },
          "slot"_a, "target"_a, "pooling"_a, "columns"_a, "length"_a = 0);
  nb::class_<Layout>(m, "Layout")
      .def(nb::init<std::vector<SlotTarget>, std::vector<uint32_t>>(), "slots"_a, "dims"_a)
      .def_prop_ro("targets", &Layout::targets)
      .def(
          "lookup",
          [](const Layout& self, Feasigns values, Offsets offsets, size_t samples) {
            nb::gil_scoped_release release;
            return new Lookup({values.data(), values.size()}, {offsets.data(), offsets.size()}, samples,
                              self.slot_numbers());
          },
          "values"_a, "offsets"_a, "samples"_a, nb::rv_policy::take_ownership);
}

void BindStats(nb::module_& m) {
  nb::class_<TableStats>(m, "TableStats")
      .def_ro("rows", &TableStats::rows)
      .def_ro("row_bytes", &TableStats::row_bytes)
      .def_ro("payload_bytes", &TableStats::payload_bytes)
      .def_ro("counter_bytes", &TableStats::counter_bytes)
      .def_ro("index_bytes", &TableStats::index_bytes)
      .def_ro("pending", &TableStats::pending)
      .def_ro("pending_bytes", &TableStats::pending_bytes)
      .def_ro("mark_bytes", &TableStats::mark_bytes)
      .def_ro("steps", &TableStats::steps);
}

void BindSteps(nb::class_<Table>& type) {
  type.def(
          "__init__",
          [](Table* self, std::string name, uint64_t seed, bool counters, std::vector<SegmentSettings> segments,
             uint32_t admission_count, double admission_probability) {
            new (self) Table(TableSettings{
                std::move(name), seed, counters, std::move(segments), {admission_count, admission_probability}});
          },
          "name"_a, "seed"_a, "counters"_a, "segments"_a, "admission_count"_a = 1, "admission_probability"_a = 1.0)
      .def_prop_ro("row_stride", [](const Table& self) { return self.layout().stride(); })
      .def("find", &Table::Find, "lookup"_a, "insert"_a, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "pull",
          [](const Table& self, const Lookup& lookup, const Layout& layout, const std::vector<Floats>& targets) {
            const auto converted = ToTargets(targets);
            nb::gil_scoped_release release;
            self.Pull(lookup, layout, converted);
          },
          "lookup"_a, "layout"_a, "targets"_a)
      .def(
          "push",
          [](Table& self, const Lookup& lookup, const Layout& layout, const std::vector<Floats>& gradients,
             const std::optional<Column>& clicks, const std::optional<Column>& shows, uint32_t now, float rate_scale,
             float gradient_scale) {
            const auto converted = ToTargets(gradients);
            PushSamples samples = ToSamples(clicks, shows, lookup.samples());
            samples.now = now;
            samples.rate_scale = rate_scale;
            samples.gradient_scale = gradient_scale;
            nb::gil_scoped_release release;
            self.Push(lookup, layout, converted, samples);
          },
          "lookup"_a, "layout"_a, "gradients"_a, "clicks"_a.none() = nb::none(), "shows"_a.none() = nb::none(),
          "now"_a = 0, "rate_scale"_a = 1.0f, "gradient_scale"_a = 1.0f)
      .def(
          "pull_rows",
          [](const Table& self, Feasigns feasigns) {
            auto weights = NewNumpy<float>({feasigns.size(), self.layout().weights_dim()});
            std::vector<uint32_t> missing;
            {
              nb::gil_scoped_release release;
              self.PullRows({feasigns.data(), feasigns.size()}, weights.data(), &missing);
            }
            return weights;
          },
          "feasigns"_a);
}

void BindRows(nb::class_<Table>& type) {
  type.def(
          "insert_rows",
          [](Table& self, Feasigns feasigns, const std::optional<Counts>& occurrences) {
            CheckLength(occurrences, feasigns.size(), "occurrences");
            auto weights = NewNumpy<float>({feasigns.size(), self.layout().weights_dim()});
            {
              nb::gil_scoped_release release;
              self.InsertRows({feasigns.data(), feasigns.size()}, occurrences ? occurrences->data() : nullptr,
                              weights.data());
            }
            return weights;
          },
          "feasigns"_a, "occurrences"_a.none() = nb::none())
      .def(
          "push_rows",
          [](Table& self, Feasigns feasigns, Gradients gradients, FloatColumn shows, FloatColumn clicks,
             const std::optional<Feasigns>& masks, uint32_t now, float rate_scale, float gradient_scale) {
            CheckLength(masks, feasigns.size(), "masks");
            RowGradients push = ToRowGradients(self, feasigns, gradients);
            push.shows = CheckedData(shows, feasigns.size(), "shows");
            push.clicks = CheckedData(clicks, feasigns.size(), "clicks");
            push.masks = masks ? masks->data() : nullptr;
            push.now = now;
            push.rate_scale = rate_scale;
            push.gradient_scale = gradient_scale;
            nb::gil_scoped_release release;
            self.PushRows(push);
          },
          "feasigns"_a, "gradients"_a, "shows"_a, "clicks"_a, "masks"_a.none() = nb::none(), "now"_a = 0,
          "rate_scale"_a = 1.0f, "gradient_scale"_a = 1.0f)
      .def(
          "add_rows",
          [](Table& self, Feasigns feasigns, Gradients deltas) {
            const RowGradients push = ToRowGradients(self, feasigns, deltas);
            nb::gil_scoped_release release;
            self.AddRows(push);
          },
          "feasigns"_a, "deltas"_a)
      .def(
          "get",
          [](const Table& self, Feasigns feasigns) {
            const size_t n = feasigns.size(), dim = self.layout().weights_dim();
            auto weights = NewNumpy<float>({n, dim});
            auto found = NewNumpy<bool>({n});
            std::vector<Counters> counters(n);
            {
              nb::gil_scoped_release release;
              self.Get({feasigns.data(), n}, weights.data(), found.data(), counters.data());
            }
            return nb::make_tuple(weights, found, CounterArray(counters, &Counters::show),
                                  CounterArray(counters, &Counters::click), LastSeenArray(counters));
          },
          "feasigns"_a);
}

void BindChanges(nb::class_<Table>& type) {
  type.def(
          "export_rows",
          [](const Table& self, uint32_t first, uint32_t last, size_t limit, uint64_t cursor,
             const std::optional<std::tuple<uint32_t, uint64_t>>& since) {
            const Mark mark = since ? Mark{std::get<0>(*since), std::get<1>(*since)} : Mark{};
            std::vector<uint64_t> feasigns;
            std::vector<float> weights;
            std::vector<Counters> counters;
            uint64_t next;
            {
              nb::gil_scoped_release release;
              next = self.Export(first, last, limit, cursor, &feasigns, &weights, &counters, since ? &mark : nullptr);
            }
            const size_t n = feasigns.size();
            return nb::make_tuple(next, MoveToNumpy(std::move(feasigns), {n}),
                                  MoveToNumpy(std::move(weights), {n, self.layout().weights_dim()}),
                                  CounterArray(counters, &Counters::show), CounterArray(counters, &Counters::click),
                                  LastSeenArray(counters));
          },
          "first_bucket"_a, "last_bucket"_a, "limit"_a, "cursor"_a, "since"_a.none() = nb::none())
      .def(
          "mark",
          [](Table& self, bool by_content) {
            Mark mark;
            {
              nb::gil_scoped_release release;
              mark = self.SetMark(by_content);
            }
            return std::make_tuple(mark.epoch, mark.id);
          },
          "by_content"_a = false)
      .def(
          "knows", [](const Table& self, uint32_t epoch, uint64_t id) { return self.Knows({epoch, id}); }, "epoch"_a,
          "id"_a)
      .def(
          "gone",
          [](const Table& self, uint32_t epoch, uint64_t id) {
            std::vector<uint64_t> gone;
            {
              nb::gil_scoped_release release;
              gone = self.Gone({epoch, id});
            }
            const size_t n = gone.size();
            return MoveToNumpy(std::move(gone), {n});
          },
          "epoch"_a, "id"_a)
      .def(
          "forget",
          [](Table& self, uint32_t epoch, uint64_t id) {
            nb::gil_scoped_release release;
            self.Forget({epoch, id});
          },
          "epoch"_a, "id"_a)
      .def("decay", &Table::Decay, "rate"_a, nb::call_guard<nb::gil_scoped_release>());
}

void BindLifecycle(nb::class_<Table>& type) {
  type.def(
          "evict",
          [](Table& self, float show_weight, float click_weight, float min_score, uint32_t oldest) {
            nb::gil_scoped_release release;
            return self.Evict({show_weight, click_weight, min_score, oldest});
          },
          "show_weight"_a, "click_weight"_a, "min_score"_a, "oldest"_a)
      .def(
          "erase",
          [](Table& self, Feasigns feasigns) {
            nb::gil_scoped_release release;
            return self.Erase({feasigns.data(), feasigns.size()});
          },
          "feasigns"_a)
      .def("stats", &Table::GetStats)
      .def("save", &Table::Save, "path"_a, "note"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("load", &Table::Load, "path"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("load_part", &Table::LoadPart, "path"_a, "first_bucket"_a, "last_bucket"_a,
           nb::call_guard<nb::gil_scoped_release>())
      .def("reset", &Table::Reset, nb::call_guard<nb::gil_scoped_release>());
}

void BindTableClass(nb::module_& m) {
  nb::class_<Table> table(m, "Table");
  BindSteps(table);
  BindRows(table);
  BindChanges(table);
  BindLifecycle(table);
}

}  // namespace

void BindTable(nb::module_& m) {
  BindTableSettings(m);
  BindLookup(m);
  BindLayout(m);
  BindStats(m);
  BindTableClass(m);
}

}  // namespace elasticctr
