#include "sample/column_bags.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>

#include "bindings/bindings.h"
#include "util/crc32c.h"
#include "util/hash.h"
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
nb::ndarray<nb::numpy, T, nb::ndim<1>> Adopt(T* data, size_t size) {
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return {data, {size}, owner};
}

auto Span(const auto& array) { return std::span(array.data(), array.size()); }

// Columns and what keeps their memory alive.
struct HeldColumns {
  HeldColumns(std::vector<Array<uint64_t>> values, std::vector<Array<int32_t>> offsets)
      : held_values(std::move(values)), held_offsets(std::move(offsets)) {
    if (held_values.size() != held_offsets.size()) {
      throw Error(Code::kFailedPrecondition, "BagColumns needs as many values as offsets");
    }
    for (size_t i = 0; i < held_values.size(); ++i) columns.push_back({Span(held_values[i]), Span(held_offsets[i])});
  }

  std::vector<Array<uint64_t>> held_values;
  std::vector<Array<int32_t>> held_offsets;
  std::vector<BagColumn> columns;
};

void BindBagColumns(nb::module_& m) {
  nb::class_<HeldColumns>(m, "BagColumns")
      .def(nb::init<std::vector<Array<uint64_t>>, std::vector<Array<int32_t>>>(), "values"_a, "offsets"_a)
      .def(
          "slice",
          [](const HeldColumns& self, size_t start, size_t stop) {
            Bags bags;
            {
              nb::gil_scoped_release release;
              bags = SliceColumns(self.columns, start, stop);
            }
            return std::pair<ValuesOut, OffsetsOut>(Adopt(bags.values.release(), bags.value_count),
                                                    Adopt(bags.offsets.release(), bags.offset_count));
          },
          "start"_a, "stop"_a);
}

}  // namespace

void BindColumnBags(nb::module_& m) {
  m.def(
      "hash_strings",
      [](const Array<int32_t>& offsets, const Array<uint8_t>& data, std::string_view slot, uint64_t seed) {
        const size_t n = offsets.size() == 0 ? 0 : offsets.size() - 1;
        std::unique_ptr<uint64_t[]> out(new uint64_t[n + 1]);
        {
          nb::gil_scoped_release release;
          HashStrings(Span(offsets), {reinterpret_cast<const char*>(data.data()), data.size()}, SlotSeed(slot, seed),
                      out.get());
        }
        return Adopt(out.release(), n);
      },
      "offsets"_a, "data"_a, "slot"_a, "seed"_a);
  m.def(
      "checksum",
      [](const Array<uint8_t>& data) {
        nb::gil_scoped_release release;
        return Crc32c(0, data.data(), data.size());
      },
      "data"_a);
  m.def(
      "hash_lines",
      [](const Array<uint8_t>& text, uint64_t seed) {
        std::vector<uint64_t> hashes;
        {
          nb::gil_scoped_release release;
          hashes = HashLines({reinterpret_cast<const char*>(text.data()), text.size()}, seed);
        }
        uint64_t* out = new uint64_t[hashes.size() + 1];
        std::copy(hashes.begin(), hashes.end(), out);
        return Adopt(out, hashes.size());
      },
      "text"_a, "seed"_a);
  m.def(
      "hash_rows",
      [](const Array<float, 2>& labels, const Array<float, 2>& dense, const Array<float>& weights,
         const Array<uint64_t>& values, const Array<int32_t>& offsets, uint64_t seed) {
        const size_t n = weights.size();
        if (labels.shape(0) != n || dense.shape(0) != n || (n > 0 && (offsets.size() - 1) % n != 0)) {
          throw Error(Code::kFailedPrecondition, "hash_rows needs arrays of the same samples");
        }
        std::unique_ptr<uint64_t[]> out(new uint64_t[n + 1]);
        {
          nb::gil_scoped_release release;
          HashRows({Span(labels), Span(dense), Span(weights), {Span(values), Span(offsets), n}}, seed, out.get());
        }
        return Adopt(out.release(), n);
      },
      "labels"_a, "dense"_a, "weights"_a, "values"_a, "offsets"_a, "seed"_a);
  BindBagColumns(m);
}

}  // namespace elasticctr
