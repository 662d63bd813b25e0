// A remote step equals a local one: rows pooled and gradients summed without a table are, bit for bit, what Table::Pull
// and Table::Push compute for the same batch.

#include "table/remote.h"

#include <cmath>
#include <limits>

#include "tests/check.h"
#include "tests/table/fixture.h"
#include "util/status.h"
#include "util/thread_pool.h"

namespace elasticctr {
namespace {

constexpr size_t kSamples = 150;
constexpr uint32_t kSlots = 4;
constexpr uint32_t kLength = 2;  // of the sequence

// The shapes of the flat array and the sequence of a batch under one layout.
struct Shape {
  Layout layout;
  size_t flat_width;
  size_t sequence_width;  // 0: none

  std::vector<float> Flat(float value) const { return std::vector<float>(kSamples * flat_width, value); }
  std::vector<float> Sequence(float value) const {
    return std::vector<float>(kSamples * kLength * sequence_width, value);
  }
  std::vector<Target> Targets(std::vector<float>* flat, std::vector<float>* sequence) const {
    std::vector<Target> targets{MakeTarget(flat, kSamples)};
    if (sequence_width > 0) {
      targets.push_back(
          {sequence->data(), kSamples, kLength, sequence_width, kLength * sequence_width, sequence_width});
    }
    return targets;
  }
};

Shape PlainShape(uint32_t dim) { return {MakeLayout(kSlots, dim), kSlots * (dim + 1), 0}; }

// Slot 1 has no linear weight, slot 3 is a sequence of embeddings.
Shape MixedShape(uint32_t dim, PoolingKind sequence) {
  const auto at = [](uint32_t column) { return static_cast<int32_t>(column); };
  std::vector<SlotTarget> slots{{0, 0, PoolingKind::kSum, {0, at(2)}, 0},
                                {1, 0, PoolingKind::kMean, {-1, at(2 + dim)}, 0},
                                {2, 0, PoolingKind::kMean, {1, at(2 + 2 * dim)}, 0},
                                {3, 1, sequence, {-1, 0}, kLength}};
  return {Layout(slots, {1, dim}), 2 + 3 * dim, dim};
}

// Rows start as zeros and step by minus the gradient, so that a row is the negative sum.
TableSettings SumSettings(uint32_t dim) {
  TableSettings settings = MakeSettings(OptimizerKind::kSgd, dim);
  for (SegmentSettings& segment : settings.segments) {
    segment.initializer = {};
    segment.optimizer = {};
    segment.optimizer.kind = OptimizerKind::kSgd;
    segment.optimizer.learning_rate = 1.0f;
  }
  return settings;
}

void FillRandom(std::vector<float>* values, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  for (float& value : *values) value = normal(rng);
}

void CheckPool(const Shape& shape, uint32_t dim, int longest) {
  Table table(MakeSettings(OptimizerKind::kAdam, dim));
  Train(&table, dim, 0, 5);
  const RandomBatch batch(77, kSamples, kSlots, longest, 8000);  // some without a row
  Lookup lookup = batch.MakeLookup();
  table.Find(&lookup, false);
  auto flat = shape.Flat(-7.0f), sequence = shape.Sequence(-7.0f);
  table.Pull(lookup, shape.layout, shape.Targets(&flat, &sequence));
  std::vector<float> rows(lookup.distinct() * (dim + 1));
  table.Get({lookup.feasigns(), lookup.distinct()}, rows.data(), nullptr, nullptr);
  const Lookup fresh = batch.MakeLookup();
  auto remote_flat = shape.Flat(-7.0f), remote_sequence = shape.Sequence(-7.0f);
  PoolRows(fresh, shape.layout, rows.data(), dim + 1, shape.Targets(&remote_flat, &remote_sequence));
  CHECK(flat == remote_flat && sequence == remote_sequence);
}

uint64_t MaskOf(const RandomBatch& batch, const Shape& shape, uint64_t feasign) {
  uint64_t mask = 0;
  for (const SlotTarget& slot : shape.layout.slots()) {
    for (size_t i = 0; i < kSamples; ++i) {
      const int32_t begin = batch.offsets[slot.slot * kSamples + i], end = batch.offsets[slot.slot * kSamples + i + 1];
      for (int32_t k = begin; k < end; ++k) {
        if (batch.values[static_cast<size_t>(k)] != feasign) continue;
        const auto length = static_cast<int32_t>(slot.length);
        if (slot.pooling == PoolingKind::kFirst && k - begin >= length) continue;
        if (slot.pooling == PoolingKind::kLast && end - k > length) continue;
        for (size_t s = 0; s < slot.columns.size(); ++s) mask |= uint64_t{slot.columns[s] >= 0} << s;
      }
    }
  }
  return mask;
}

void CheckSums(const Shape& shape, uint32_t dim, int longest, float scale) {
  Table table(SumSettings(dim));
  const RandomBatch batch(5, kSamples, kSlots, longest, 60);
  Lookup lookup = batch.MakeLookup();
  table.Find(&lookup, true);
  auto flat = shape.Flat(0.0f), sequence = shape.Sequence(0.0f);
  FillRandom(&flat, 1);
  FillRandom(&sequence, 2);
  std::vector<float> clicks(kSamples), shows(kSamples);
  FillRandom(&clicks, 3);
  FillRandom(&shows, 4);
  PushSamples samples;
  samples.clicks = clicks.data();
  samples.shows = shows.data();
  samples.gradient_scale = scale;
  table.Push(lookup, shape.layout, shape.Targets(&flat, &sequence), samples);
  const Lookup fresh = batch.MakeLookup();
  SummedGradients sums;
  SumGradients(fresh, shape.layout, dim + 1, shape.Targets(&flat, &sequence), samples, &sums);
  CHECK(sums.is_finite);
  std::vector<float> rows(lookup.distinct() * (dim + 1));
  std::vector<Counters> counters(lookup.distinct());
  table.Get({lookup.feasigns(), lookup.distinct()}, rows.data(), nullptr, counters.data());
  bool is_partial = false;
  for (size_t i = 0; i < lookup.distinct(); ++i) {
    for (size_t j = 0; j <= dim; ++j) CHECK(rows[i * (dim + 1) + j] == -sums.gradients[i * (dim + 1) + j]);
    CHECK(counters[i].show == sums.shows[i] && counters[i].click == sums.clicks[i]);
    const uint64_t mask = MaskOf(batch, shape, fresh.feasigns()[i]);
    is_partial |= mask != 3;
    if (sums.has_masks) CHECK(sums.masks[i] == mask);
  }
  CHECK(sums.has_masks == is_partial);
}

void CheckNotFinite() {
  const Shape shape = PlainShape(4);
  const RandomBatch batch(5, kSamples, kSlots, 3, 60);
  const Lookup lookup = batch.MakeLookup();
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(), -1e30f}) {
    auto flat = shape.Flat(1.0f);
    // The gradient of a bag counts only if the bag holds a value.
    for (size_t i = 0; i < kSamples; ++i) flat[i * shape.flat_width + 2] = bad;
    SummedGradients sums;
    SumGradients(lookup, shape.layout, 5, {MakeTarget(&flat, kSamples)}, {}, &sums);
    CHECK(!sums.is_finite);
  }
}

template <typename Call>
bool IsRefused(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code() == Code::kFailedPrecondition;
  }
  return false;
}

void CheckRefusals() {
  const Shape shape = PlainShape(4);
  const RandomBatch batch(5, kSamples, kSlots, 3, 60), other(5, kSamples, kSlots - 1, 3, 60);
  const Lookup lookup = batch.MakeLookup(), fewer = other.MakeLookup();
  auto flat = shape.Flat(1.0f);
  const std::vector<float> rows(lookup.distinct() * 9);
  const std::vector<Target> targets{MakeTarget(&flat, kSamples)};
  SummedGradients sums;
  CHECK(IsRefused([&] { PoolRows(lookup, shape.layout, rows.data(), 4, targets); }));
  CHECK(IsRefused([&] { PoolRows(fewer, shape.layout, rows.data(), 5, targets); }));
  CHECK(IsRefused([&] { PoolRows(lookup, shape.layout, rows.data(), 5, {}); }));
  CHECK(IsRefused([&] { SumGradients(lookup, shape.layout, 6, targets, {}, &sums); }));
  CHECK(IsRefused([&] { SumGradients(fewer, shape.layout, 5, targets, {}, &sums); }));
}

}  // namespace
}  // namespace elasticctr

int main() {
  using namespace elasticctr;
  for (const size_t threads : {1, 3}) {
    ThreadPool::SetDefaultThreads(threads);
    for (const uint32_t dim : {4u, 9u, 16u}) {
      for (const int longest : {1, 4}) {
        CheckPool(PlainShape(dim), dim, longest);
        CheckSums(PlainShape(dim), dim, longest, 1.0f);
        CheckSums(PlainShape(dim), dim, longest, 0.3f);
        for (const PoolingKind kind : {PoolingKind::kFirst, PoolingKind::kLast}) {
          CheckPool(MixedShape(dim, kind), dim, longest);
          CheckSums(MixedShape(dim, kind), dim, longest, 1.0f);
        }
      }
    }
  }
  CheckNotFinite();
  CheckRefusals();
  return 0;
}
