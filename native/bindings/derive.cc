#include "sample/derive.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>

#include "bindings/bindings.h"
#include "sample/vocabulary.h"
#include "util/status.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace elasticctr {
namespace {

template <typename T, size_t kDims = 1>
using Array = nb::ndarray<const T, nb::ndim<kDims>, nb::c_contig, nb::device::cpu>;
using ValuesOut = nb::ndarray<nb::numpy, uint64_t, nb::ndim<1>>;
using OffsetsOut = nb::ndarray<nb::numpy, int32_t, nb::ndim<1>>;

template <typename T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> Adopt(std::unique_ptr<T[]> memory, size_t size) {
  T* data = memory.release();
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return {data, {size}, owner};
}

void BindVocabulary(nb::module_& m) {
  nb::class_<FeasignCounter>(m, "FeasignCounter")
      .def(nb::init<>())
      .def(
          "add",
          [](FeasignCounter& self, const Array<uint64_t>& feasigns) {
            nb::gil_scoped_release release;
            self.Add({feasigns.data(), feasigns.size()});
          },
          "feasigns"_a)
      .def(
          "take",
          [](const FeasignCounter& self, uint32_t min_count) {
            std::vector<uint64_t> kept;
            {
              nb::gil_scoped_release release;
              kept = self.Take(min_count);
            }
            std::unique_ptr<uint64_t[]> out(new uint64_t[kept.size() + 1]);
            std::copy(kept.begin(), kept.end(), out.get());
            return Adopt(std::move(out), kept.size());
          },
          "min_count"_a)
      .def_prop_ro("total", &FeasignCounter::total)
      .def("__len__", &FeasignCounter::size);
  nb::class_<FeasignSet>(m, "FeasignSet")
      .def(
          "__init__",
          [](FeasignSet* self, const Array<uint64_t>& feasigns) {
            nb::gil_scoped_release release;
            new (self) FeasignSet({feasigns.data(), feasigns.size()});
          },
          "feasigns"_a)
      .def(
          "replace",
          [](const FeasignSet& self, const nb::ndarray<uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>& values,
             size_t first, size_t last, uint64_t other) {
            if (first > last || last > values.size()) {
              throw Error(Code::kFailedPrecondition, "replace needs a range inside the values");
            }
            nb::gil_scoped_release release;
            return self.Replace({values.data() + first, last - first}, other);
          },
          "values"_a, "first"_a, "last"_a, "other"_a)
      .def("__contains__", &FeasignSet::Has, "feasign"_a)
      .def("__len__", &FeasignSet::size);
}

}  // namespace

void BindDerive(nb::module_& m) {
  nb::class_<DerivedSpec>(m, "DerivedSpec")
      .def_static(
          "cross",
          [](std::string name, std::vector<uint32_t> parts, uint32_t max_values, bool keep_last) {
            return DerivedSpec{std::move(name), true, {std::move(parts), max_values, keep_last}, {}};
          },
          "name"_a, "parts"_a, "max_values"_a, "keep_last"_a)
      .def_static(
          "bucket",
          [](std::string name, uint32_t dense, uint32_t index, std::vector<double> edges) {
            return DerivedSpec{std::move(name), false, {}, {dense, index, std::move(edges)}};
          },
          "name"_a, "dense"_a, "index"_a, "edges"_a);
  nb::class_<Deriver>(m, "Deriver")
      .def(nb::init<>())
      .def(nb::init<const ParserSpec&, std::vector<DerivedSpec>>(), "samples"_a, "slots"_a)
      .def(
          "derive",
          [](const Deriver& self, const Array<uint64_t>& values, const Array<int32_t>& offsets,
             const Array<float, 2>& dense) {
            Bags bags;
            {
              nb::gil_scoped_release release;
              bags = self.Derive({{values.data(), values.size()}, {offsets.data(), offsets.size()}, dense.shape(0)},
                                 {dense.data(), dense.size()});
            }
            return std::pair<ValuesOut, OffsetsOut>(Adopt(std::move(bags.values), bags.value_count),
                                                    Adopt(std::move(bags.offsets), bags.offset_count));
          },
          "values"_a, "offsets"_a, "dense"_a);
  BindVocabulary(m);
}

}  // namespace elasticctr
