#include "sample/derive.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "sample/transform.h"
#include "util/hash.h"
#include "util/status.h"

namespace elasticctr {
namespace {

constexpr size_t kMostParts = 3;
constexpr uint32_t kMinusZero = 0x80000000;

[[noreturn]] void Refuse(const std::string& name, const std::string& why) {
  throw Error(Code::kConfig, "slot '" + name + "' " + why);
}

// Converts edges like dense floats: rounded, transformed. A transformed number may differ in its last bit between the C
// library and NumPy, so transformed edges move two floats down: a number equal to an edge is then never below it.
std::vector<float> TransformEdges(const BucketSpec& bucket, const DenseSpec& dense, const std::string& name) {
  std::vector<float> edges;
  for (const double edge : bucket.edges) {
    float moved = TransformDense(dense, bucket.index, edge);
    if (!std::isfinite(moved)) Refuse(name, "has an edge that is not a finite number");
    if (dense.transform != Transform::kNone) {
      for (int i = 0; i < 2; ++i) moved = std::nextafterf(moved, -INFINITY);
    }
    if (!edges.empty() && moved < edges.back()) Refuse(name, "needs edges in ascending order");
    edges.push_back(moved);
  }
  return edges;
}

[[noreturn]] void RefuseBatch() {
  throw Error(Code::kFailedPrecondition, "a batch is not of the schema its derived slots were made for");
}

[[noreturn]] void RefuseSize() {
  throw Error(Code::kFailedPrecondition, "a batch holds over 2^31 values; make smaller batches");
}

void CheckOffsets(const BagsView& bags) {
  if (bags.offsets[0] < 0) RefuseBatch();
  int32_t last = 0;
  for (const int32_t offset : bags.offsets) {
    if (offset < last) throw Error(Code::kCorruption, "offsets of a batch go backwards");
    last = offset;
  }
  if (static_cast<size_t>(last) > bags.values.size()) {
    throw Error(Code::kCorruption, "offsets of a batch point past its values");
  }
}

}  // namespace

uint32_t DerivedSlot::CountCross(std::span<const std::span<const uint64_t>> parts) const {
  uint64_t count = 1;  // a part has at most 2^20 values and there are at most three
  for (const auto& part : parts) count *= part.size();
  return static_cast<uint32_t>(std::min<uint64_t>(count, spec_.cross.max_values));
}

void DerivedSlot::FillCross(std::span<const std::span<const uint64_t>> parts, uint64_t* out) const {
  uint64_t total = 1;
  for (const auto& part : parts) total *= part.size();
  const uint64_t start = seed_ + xxh::kPrime5 + 8 * parts.size();
  if (total == 1) {  // true of most crosses
    uint64_t hash = start;
    for (const auto& part : parts) hash = xxh::Mix8(hash, part[0]);
    *out = xxh::Avalanche(hash);
    return;
  }
  const uint64_t count = std::min<uint64_t>(total, spec_.cross.max_values);
  const uint64_t first = spec_.cross.keep_last ? total - count : 0;
  std::array<size_t, kMostParts> at{};
  uint64_t rest = first;
  for (size_t i = parts.size(); i-- > 0; rest /= parts[i].size()) at[i] = rest % parts[i].size();
  for (uint64_t k = 0; k < count; ++k) {
    uint64_t hash = start;
    for (size_t i = 0; i < parts.size(); ++i) hash = xxh::Mix8(hash, parts[i][at[i]]);
    out[k] = xxh::Avalanche(hash);
    for (size_t i = parts.size(); i-- > 0;) {
      if (++at[i] < parts[i].size()) break;
      at[i] = 0;
    }
  }
}

uint64_t DerivedSlot::Bucket(float value) const {
  if (std::bit_cast<uint32_t>(value) == kMinusZero) return FeatureHash8(kMissing, seed_);
  const auto above = std::upper_bound(edges_.begin(), edges_.end(), value);
  return FeatureHash8(static_cast<uint64_t>(above - edges_.begin()), seed_);
}

Deriver::Deriver(const ParserSpec& samples, std::vector<DerivedSpec> specs)
    : sparse_(samples.sparse.size()), dense_dim_(samples.dense_dim()) {
  for (DerivedSpec& spec : specs) {
    DerivedSlot slot;
    if (spec.is_cross) {
      const size_t parts = spec.cross.parts.size();
      if (parts < 2 || parts > kMostParts) Refuse(spec.name, "is a cross of two or three slots");
      if (spec.cross.max_values == 0) Refuse(spec.name, "needs room for a value");
      for (const uint32_t part : spec.cross.parts) {
        if (part >= sparse_ + slots_.size()) Refuse(spec.name, "crosses a slot that is not there or comes after it");
      }
    } else {
      if (spec.bucket.dense >= samples.dense.size() || spec.bucket.index >= samples.dense[spec.bucket.dense].dim) {
        Refuse(spec.name, "is made of a number that is not there");
      }
      slot.dense_column_ = spec.bucket.index;
      for (uint32_t i = 0; i < spec.bucket.dense; ++i) slot.dense_column_ += samples.dense[i].dim;
      slot.edges_ = TransformEdges(spec.bucket, samples.dense[spec.bucket.dense], spec.name);
    }
    slot.seed_ = SlotSeed(spec.name, samples.hash_seed);
    slot.spec_ = std::move(spec);
    slots_.push_back(std::move(slot));
  }
}

Bags Deriver::Derive(const BagsView& bags, std::span<const float> dense) const {
  const size_t n = bags.n, total = sparse_ + slots_.size();
  if (bags.offsets.size() != sparse_ * n + 1 || dense.size() != n * dense_dim_) RefuseBatch();
  CheckOffsets(bags);
  if (total * n >= INT32_MAX) RefuseSize();
  Bags out;
  out.offset_count = total * n + 1;
  out.offsets.reset(new int32_t[out.offset_count]);
  const int32_t base = bags.offsets[0];
  for (size_t i = 0; i <= sparse_ * n; ++i) out.offsets[i] = bags.offsets[i] - base;

  // A derived slot may be part of a later one, so values are appended to the array that parts are read from.
  std::vector<uint64_t> derived;
  const auto given = static_cast<size_t>(out.offsets[sparse_ * n]);
  const auto bag_of = [&](uint32_t slot, size_t i) -> std::span<const uint64_t> {
    const auto begin = static_cast<size_t>(out.offsets[slot * n + i]);
    const auto end = static_cast<size_t>(out.offsets[slot * n + i + 1]);
    const uint64_t* from = slot < sparse_ ? bags.values.data() + base + begin : derived.data() + (begin - given);
    return {from, end - begin};
  };
  std::array<std::span<const uint64_t>, kMostParts> parts;
  int32_t* ends = out.offsets.get() + sparse_ * n + 1;
  for (const DerivedSlot& slot : slots_) {
    size_t at = derived.size();
    if (!slot.is_cross()) {
      derived.resize(at + n);
      for (size_t i = 0; i < n; ++i) {
        derived[at++] = slot.Bucket(dense[i * dense_dim_ + slot.dense_column()]);
        *ends++ = static_cast<int32_t>(given + at);
      }
      continue;
    }
    const std::span<const std::span<const uint64_t>> used(parts.data(), slot.parts().size());
    size_t count = 0;
    const auto read = [&](size_t i) {
      for (size_t p = 0; p < used.size(); ++p) parts[p] = bag_of(slot.parts()[p], i);
    };
    for (size_t i = 0; i < n; ++i) {
      read(i);
      count += slot.CountCross(used);
    }
    if (given + at + count > INT32_MAX) {
      RefuseSize();
    }
    derived.resize(at + count);
    for (size_t i = 0; i < n; ++i) {
      read(i);
      const uint32_t values = slot.CountCross(used);
      if (values > 0) slot.FillCross(used, derived.data() + at);
      at += values;
      *ends++ = static_cast<int32_t>(given + at);
    }
  }
  out.value_count = given + derived.size();
  out.values.reset(new uint64_t[std::max<size_t>(out.value_count, 1)]);
  std::copy_n(bags.values.data() + base, given, out.values.get());
  std::copy(derived.begin(), derived.end(), out.values.get() + given);
  return out;
}

}  // namespace elasticctr
