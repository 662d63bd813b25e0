// Random samples, written in every format, read back by the parser bit for bit.
#include "sample/format/writer.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "sample/parser.h"
#include "tests/check.h"
#include "util/hash.h"
#include "util/status.h"

namespace elasticctr {
namespace {

struct Samples {
  LineLayout layout;
  std::vector<float> labels, dense, weights, shows;
  std::vector<uint64_t> values;
  std::vector<int32_t> offsets{0};

  LineColumns columns() const { return {labels.size(), labels, dense, values, offsets, weights, shows}; }
};

Samples Draw(std::mt19937_64& random, LineFormat format, size_t n) {
  Samples s;
  s.layout.format = format;
  s.layout.labels = {"click"};
  const bool with_dense = format != LineFormat::kFeasign;
  const size_t sparse = format == LineFormat::kLibsvm ? 1 : 1 + random() % 5;
  size_t dense_dim = 0;
  for (size_t i = 0; with_dense && i < random() % 3; ++i) {
    s.layout.slots.push_back({"d" + std::to_string(i), true, 1 + random() % 4, false});
    dense_dim += s.layout.slots.back().dim;
  }
  for (size_t i = 0; i < sparse; ++i)
    s.layout.slots.push_back({"slot_with_a_name" + std::to_string(i), false, 1, false});
  for (size_t i = 0; i < n; ++i) {
    s.labels.push_back(static_cast<float>(random() % 2));
    s.weights.push_back(1);
    s.shows.push_back(format == LineFormat::kFeasign ? static_cast<float>(random() % 9) : 1);
    for (size_t d = 0; d < dense_dim; ++d) {
      // Any finite float that is not denormal: those are read as the nearest double, then rounded.
      uint32_t bits = static_cast<uint32_t>(random());
      float v;
      std::memcpy(&v, &bits, sizeof v);
      s.dense.push_back(std::isnormal(v) ? v : 0.0f);
    }
  }
  for (size_t i = 0; i < sparse * n; ++i) {
    for (size_t k = random() % 4; k > 0; --k)
      s.values.push_back(100 + (random() >> random() % 57) % (~uint64_t{0} - 100));
    s.offsets.push_back(static_cast<int32_t>(s.values.size()));
  }
  return s;
}

ParserSpec SpecOf(const LineLayout& layout, TextFormat format) {
  ParserSpec spec;
  spec.format = format;
  spec.labels = layout.labels;
  for (const LineSlot& slot : layout.slots) {
    if (slot.dense) {
      DenseSpec dense;
      dense.name = slot.name;
      dense.dim = static_cast<uint32_t>(slot.dim);
      spec.dense.push_back(dense);
    } else {
      SparseSpec sparse;
      sparse.name = slot.name;
      spec.sparse.push_back(sparse);
    }
  }
  return spec;
}

template <typename T>
bool Equal(const std::vector<T>& a, const T* b, size_t size) {
  return a.size() == size && (size == 0 || std::memcmp(a.data(), b, size * sizeof(T)) == 0);
}

void RoundTrips() {
  std::mt19937_64 random(7);
  std::string out;
  const std::pair<LineFormat, TextFormat> formats[] = {{LineFormat::kSlot, TextFormat::kSlot},
                                                       {LineFormat::kFeasign, TextFormat::kFeasign},
                                                       {LineFormat::kLibsvm, TextFormat::kLibsvm},
                                                       {LineFormat::kLibffm, TextFormat::kLibffm}};
  for (int round = 0; round < 200; ++round) {
    const auto [to, from] = formats[round % 4];
    const Samples s = Draw(random, to, random() % 40);
    const size_t size = WriteLines(s.layout, s.columns(), &out);
    Parser parser(SpecOf(s.layout, from), Split(0, 1, 0), 1);
    const auto block = parser.Parse(std::string_view(out).substr(0, size), 1);
    CHECK(block->bad_count == 0);
    CHECK(Equal(s.labels, block->labels, block->n));
    CHECK(Equal(s.shows, block->shows, block->n));
    CHECK(Equal(s.dense, block->dense, block->n * block->dense_dim));
    CHECK(Equal(s.values, block->values, block->value_count));
    CHECK(Equal(s.offsets, block->offsets, block->offset_count));
  }
}

void Extremes() {
  LineLayout layout{LineFormat::kSlot, {"y"}, "", {{"d", true, 3, false}, {"s", false, 1, false}}};
  const std::vector<float> labels{1}, ones{1}, dense{std::numeric_limits<float>::max(), -0.0f, 1.0f / 3};
  const std::vector<uint64_t> values{0, ~uint64_t{0}};
  const std::vector<int32_t> offsets{0, 2};
  std::string out;
  size_t size = WriteLines(layout, {1, labels, dense, values, offsets, ones, ones}, &out);
  CHECK(out.substr(0, size) == "y:1 d:3.4028235e+38 d:-0 d:0.33333334 s:0 s:18446744073709551615\n");
}

template <typename Fn>
bool Throws(Code code, Fn&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.code() == code;
  }
  return false;
}

void Refusals() {
  const std::vector<float> ones{1}, nan{std::nanf("")}, none;
  const std::vector<uint64_t> values{1, 2};
  const std::vector<int32_t> both{0, 2};
  std::string out;
  const LineLayout dense{LineFormat::kSlot, {"y"}, "", {{"d", true, 1, false}}};
  const std::vector<int32_t> empty{0};
  CHECK(Throws(Code::kData, [&] { WriteLines(dense, {1, ones, nan, {}, empty, ones, ones}, &out); }));
  const LineLayout criteo{LineFormat::kCriteo, {"y"}, "", {{"s", false, 1, true}}};
  CHECK(Throws(Code::kData, [&] { WriteLines(criteo, {1, ones, none, values, both, ones, ones}, &out); }));
  CHECK(Throws(Code::kInternal, [&] { WriteLines(criteo, {1, ones, none, {}, both, ones, ones}, &out); }));
  CHECK(Throws(Code::kInternal, [&] { WriteLines(criteo, {2, ones, none, values, both, ones, ones}, &out); }));
  CHECK(Throws(Code::kConfig, [] { LineFormatOf("csv"); }));
}

void HexCodes() {
  const std::vector<uint64_t> codes{0, 0xdeadbeef, 0x0000000a};
  uint64_t feasigns[3];
  HashHexCodes(codes, SlotSeed("7", 3), feasigns);
  CHECK(feasigns[0] == FeatureHash("00000000", SlotSeed("7", 3)));
  CHECK(feasigns[1] == FeatureHash("deadbeef", SlotSeed("7", 3)));
  CHECK(feasigns[2] == FeatureHash("0000000a", SlotSeed("7", 3)));
}

}  // namespace
}  // namespace elasticctr

int main() {
  elasticctr::RoundTrips();
  elasticctr::Extremes();
  elasticctr::Refusals();
  elasticctr::HexCodes();
}
