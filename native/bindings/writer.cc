#include "sample/format/writer.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "bindings/bindings.h"
#include "util/hash.h"
#include "util/status.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace elasticctr {
namespace {

template <typename T>
using Array1 = nb::ndarray<const T, nb::numpy, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Array2 = nb::ndarray<const T, nb::numpy, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <typename A>
auto SpanOf(const A& a) {
  return std::span(a.data(), a.size());
}

nb::bytes Write(const LineLayout& layout, Array2<float> labels, Array2<float> dense, Array1<uint64_t> values,
                Array1<int32_t> offsets, Array1<float> weights, Array1<float> shows) {
  LineColumns columns{labels.shape(0), SpanOf(labels),  SpanOf(dense), SpanOf(values),
                      SpanOf(offsets), SpanOf(weights), SpanOf(shows)};
  thread_local std::string out;
  size_t size;
  {
    nb::gil_scoped_release release;
    size = WriteLines(layout, columns, &out);
  }
  return nb::bytes(out.data(), size);
}

}  // namespace

void BindWriter(nb::module_& m) {
  nb::class_<LineLayout>(m, "LineLayout")
      .def(
          "__init__",
          [](LineLayout* self, std::string_view format, std::vector<std::string> labels, std::string weight,
             std::vector<std::tuple<std::string, bool, size_t, bool>> slots) {
            LineLayout layout{LineFormatOf(format), std::move(labels), std::move(weight), {}};
            for (auto& [name, dense, dim, hex] : slots) layout.slots.push_back({std::move(name), dense, dim, hex});
            new (self) LineLayout(std::move(layout));
          },
          "format"_a, "labels"_a, "weight"_a, "slots"_a, "slots: (name, is dense, dim, written as hex) each")
      .def("write", &Write, "labels"_a, "dense"_a, "values"_a, "offsets"_a, "weights"_a, "shows"_a);
  m.def(
      "hash_hex_codes",
      [](std::string_view slot, uint64_t seed, Array1<uint64_t> codes) {
        auto feasigns = std::make_unique<uint64_t[]>(codes.size());
        {
          nb::gil_scoped_release release;
          HashHexCodes(SpanOf(codes), SlotSeed(slot, seed), feasigns.get());
        }
        uint64_t* data = feasigns.release();
        nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<uint64_t*>(p); });
        return nb::ndarray<uint64_t, nb::numpy, nb::ndim<1>>(data, {codes.size()}, owner);
      },
      "slot"_a, "seed"_a, "codes"_a);
}

}  // namespace elasticctr
