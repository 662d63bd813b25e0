#include "sample/derive.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "bindings/bindings.h"

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
}

}  // namespace elasticctr
