#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "sample/bags.h"
#include "sample/format/separators.h"
#include "sample/parser.h"
#include "util/status.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace elasticctr {
namespace {

using Values = nb::ndarray<const uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Offsets = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ValuesOut = nb::ndarray<nb::numpy, uint64_t, nb::ndim<1>>;
using OffsetsOut = nb::ndarray<nb::numpy, int32_t, nb::ndim<1>>;
using BagsOut = std::pair<ValuesOut, OffsetsOut>;

// The bytes of any Python buffer, held while this lives. Made and dropped with the GIL.
class Bytes {
 public:
  explicit Bytes(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_SIMPLE) != 0) throw nb::python_error();
  }
  ~Bytes() { PyBuffer_Release(&buffer_); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;

  std::string_view view() const { return {static_cast<const char*>(buffer_.buf), static_cast<size_t>(buffer_.len)}; }

 private:
  Py_buffer buffer_;
};

template <typename Array, typename T>
Array Adopt(std::unique_ptr<T[]> memory, size_t size) {
  T* data = memory.release();
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return Array(data, {size}, owner);
}

BagsOut Adopt(Bags bags) {
  return {Adopt<ValuesOut>(std::move(bags.values), bags.value_count),
          Adopt<OffsetsOut>(std::move(bags.offsets), bags.offset_count)};
}

BagsView View(const Values& values, const Offsets& offsets, size_t n) {
  return {{values.data(), values.size()}, {offsets.data(), offsets.size()}, n};
}

// An array inside a Block, which stays alive with it.
template <typename T, size_t kDims>
auto ArrayOf(T* Block::* data, size_t Block::* rows, size_t Block::* columns = nullptr) {
  return [=](nb::handle_t<Block> self) {
    Block& block = nb::cast<Block&>(self);
    using Array = nb::ndarray<nb::numpy, T, nb::ndim<kDims>>;
    if constexpr (kDims == 2) {
      return Array(block.*data, {block.*rows, block.*columns}, self);
    } else {
      return Array(block.*data, {block.*rows}, self);
    }
  };
}

void BindSpec(nb::module_& m) {
  nb::enum_<TextFormat>(m, "TextFormat")
      .value("FEASIGN", TextFormat::kFeasign)
      .value("SLOT", TextFormat::kSlot)
      .value("CRITEO", TextFormat::kCriteo)
      .value("LIBSVM", TextFormat::kLibsvm)
      .value("LIBFFM", TextFormat::kLibffm);
  nb::enum_<Transform>(m, "Transform")
      .value("NONE", Transform::kNone)
      .value("LOG1P", Transform::kLog1p)
      .value("SCALE", Transform::kScale);
  nb::class_<SparseSpec>(m, "SparseSpec")
      .def(
          "__init__",
          [](SparseSpec* self, std::string name, bool hashed, bool keep_last, uint32_t max_values,
             std::string hashed_as) {
            new (self) SparseSpec{std::move(name), hashed, keep_last, max_values, std::move(hashed_as)};
          },
          "name"_a, "hashed"_a, "keep_last"_a, "max_values"_a, "hashed_as"_a = "");
  nb::class_<DenseSpec>(m, "DenseSpec")
      .def(
          "__init__",
          [](DenseSpec* self, std::string name, uint32_t dim, Transform transform, std::vector<double> min,
             std::vector<double> diff, bool marks_missing) {
            new (self) DenseSpec{std::move(name), dim, transform, std::move(min), std::move(diff), marks_missing};
          },
          "name"_a, "dim"_a, "transform"_a, "min"_a, "diff"_a, "marks_missing"_a = false);
  nb::class_<ParserSpec>(m, "ParserSpec")
      .def(
          "__init__",
          [](ParserSpec* self, TextFormat format, std::vector<std::string> labels, std::string weight,
             std::vector<SparseSpec> sparse, std::vector<DenseSpec> dense, uint64_t hash_seed, bool require_label) {
            new (self) ParserSpec{format,           std::move(labels), std::move(weight), std::move(sparse),
                                  std::move(dense), hash_seed,         require_label};
          },
          "format"_a, "labels"_a, "weight"_a, "sparse"_a, "dense"_a, "hash_seed"_a, "require_label"_a);
  nb::class_<Split>(m, "Split")
      .def(nb::init<double, double, uint64_t>(), "lo"_a, "hi"_a, "seed"_a)
      .def(
          "keeps", [](const Split& self, nb::bytes line) { return self.Keeps({line.c_str(), line.size()}); }, "line"_a);
}

void BindParser(nb::module_& m) {
  nb::class_<BadLine>(m, "BadLine").def_ro("line", &BadLine::line).def_ro("reason", &BadLine::reason);
  nb::class_<Block>(m, "Block")
      .def_prop_ro("labels", ArrayOf<float, 2>(&Block::labels, &Block::n, &Block::label_count))
      .def_prop_ro("dense", ArrayOf<float, 2>(&Block::dense, &Block::n, &Block::dense_dim))
      .def_prop_ro("weights", ArrayOf<float, 1>(&Block::weights, &Block::n))
      .def_prop_ro("shows", ArrayOf<float, 1>(&Block::shows, &Block::n))
      .def_prop_ro("values", ArrayOf<uint64_t, 1>(&Block::values, &Block::value_count))
      .def_prop_ro("offsets", ArrayOf<int32_t, 1>(&Block::offsets, &Block::offset_count))
      .def_ro("lines", &Block::lines)
      .def_ro("next_line", &Block::next_line)
      .def_ro("bad_count", &Block::bad_count)
      .def_ro("bad", &Block::bad);
  nb::class_<Parser>(m, "Parser")
      .def(nb::init<ParserSpec, Split, size_t>(), "spec"_a, "split"_a, "threads"_a)
      .def(
          "parse",
          [](Parser& self, nb::handle text, uint64_t first_line) {
            const Bytes bytes(text);
            nb::gil_scoped_release release;
            return self.Parse(bytes.view(), first_line);
          },
          "text"_a, "first_line"_a = 1,
          nb::sig("def parse(self, text: bytes | bytearray | memoryview, first_line: int = 1) -> Block"));
}

void BindLines(nb::module_& m) {
  m.def(
      "cut_lines",
      [](nb::handle text) {
        const Bytes bytes(text);
        nb::gil_scoped_release release;
        const WholeLines whole = CutLines(bytes.view());
        return std::pair(whole.bytes, whole.count);
      },
      "text"_a, nb::sig("def cut_lines(text: bytes | bytearray | memoryview) -> tuple[int, int]"));
}

void BindBags(nb::module_& m) {
  m.def(
      "take_bags",
      [](const Values& values, const Offsets& offsets, size_t n, const Rows& rows) {
        Bags bags;
        {
          nb::gil_scoped_release release;
          bags = TakeBags(View(values, offsets, n), {rows.data(), rows.size()});
        }
        return Adopt(std::move(bags));
      },
      "values"_a, "offsets"_a, "n"_a, "rows"_a);
  m.def(
      "slice_bags",
      [](const Values& values, const Offsets& offsets, size_t n, size_t start, size_t stop) {
        Bags bags;
        {
          nb::gil_scoped_release release;
          bags = SliceBags(View(values, offsets, n), start, stop);
        }
        return Adopt(std::move(bags));
      },
      "values"_a, "offsets"_a, "n"_a, "start"_a, "stop"_a);
  m.def(
      "concat_bags",
      [](const std::vector<Values>& values, const std::vector<Offsets>& offsets, const std::vector<size_t>& ns) {
        if (values.size() != ns.size() || offsets.size() != ns.size()) {
          throw Error(Code::kFailedPrecondition, "concat_bags needs as many values as offsets and sizes");
        }
        std::vector<BagsView> parts;
        for (size_t i = 0; i < ns.size(); ++i) parts.push_back(View(values[i], offsets[i], ns[i]));
        Bags bags;
        {
          nb::gil_scoped_release release;
          bags = ConcatBags(parts);
        }
        return Adopt(std::move(bags));
      },
      "values"_a, "offsets"_a, "ns"_a);
}

}  // namespace

void BindSample(nb::module_& m) {
  BindSpec(m);
  BindParser(m);
  BindLines(m);
  BindBags(m);
}

}  // namespace elasticctr
