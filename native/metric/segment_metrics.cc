#include "metric/segment_metrics.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "metric/loss_kernel.h"
#include "util/status.h"

namespace elasticctr::metric {
namespace {

// Makes the choice of values independent of the shards and indexes, which also use Mix64.
constexpr uint64_t kSalt = 0x5EC3E1175A1E5ULL;

const std::array<float, kBlock> kOnes = [] {
  std::array<float, kBlock> ones;
  ones.fill(1.0f);
  return ones;
}();

uint64_t Scaled(double value, int bits) { return static_cast<uint64_t>(std::ldexp(value, bits) + 0.5); }

Segment SumsOf(uint64_t positive, uint64_t negative, double loss, double predicted) {
  Segment sums;
  sums.samples = 1;
  sums.weight = positive + negative;
  sums.positive = positive;
  const double weight = static_cast<double>(sums.weight) / kWeightOne;
  const double square = weight * weight;
  sums.predicted = Scaled(weight * predicted, kSumBits);
  sums.loss = Scaled(weight * loss, kSumBits);
  sums.square_weight = Scaled(square, kWeightBits);
  sums.square_loss = Scaled(square * loss, kWeightBits);
  sums.square_square = Scaled(square * loss * loss, kWeightBits);
  return sums;
}

}  // namespace

void Segment::Add(const Segment& other) {
  samples += other.samples;
  weight += other.weight;
  positive += other.positive;
  predicted += other.predicted;
  loss += other.loss;
  square_weight += other.square_weight;
  square_loss += other.square_loss;
  square_square += other.square_square;
}

bool SegmentMetrics::IsKept(uint64_t value, uint32_t level) {
  return level == 0 || Mix64(value + kSalt) >> (64 - level) == 0;
}

void SegmentMetrics::Add(uint64_t value, const Segment& sums) {
  if (!IsKept(value, level_)) return;
  segments_[value].Add(sums);
  while (segments_.size() > max_values_ && level_ < 63) {
    ++level_;
    std::erase_if(segments_, [&](const auto& entry) { return !IsKept(entry.first, level_); });
  }
}

void SegmentMetrics::Update(const uint64_t* values, const int32_t* offsets, const float* logits, const float* labels,
                            const float* weights, size_t n) {
  std::scoped_lock lock(mutex_);
  Block block;
  double loss[kBlock];
  double predicted[kBlock];
  std::vector<uint64_t> bag;
  for (size_t start = 0; start < n; start += kBlock) {
    const size_t size = std::min(kBlock, n - start);
    const float* w = weights ? weights + start : kOnes.data();
    ComputeBlock(logits + start, labels + start, w, size, &block);
    EvaluateEach(block, size, loss, predicted);
    for (size_t i = 0; i < size; ++i) {
      if (!IsValid(logits[start + i], labels[start + i], w[i])) {
        ++invalid_;
        continue;
      }
      ++samples_;
      const Segment sums = SumsOf(block.positive[i], block.negative[i], loss[i], predicted[i]);
      bag.assign(values + offsets[start + i], values + offsets[start + i + 1]);
      if (bag.empty()) bag.push_back(0);
      std::sort(bag.begin(), bag.end());
      bag.erase(std::unique(bag.begin(), bag.end()), bag.end());
      for (uint64_t value : bag) Add(value, sums);
    }
  }
}

void SegmentMetrics::Merge(const SegmentMetrics& other) {
  std::unordered_map<uint64_t, Segment, Mixed> segments;
  uint32_t level;
  uint64_t samples;
  uint64_t invalid;
  {
    std::scoped_lock lock(other.mutex_);
    if (other.max_values_ != max_values_) {
      throw Error(Code::kFailedPrecondition, "segment metrics of " + std::to_string(other.max_values_) +
                                                 " values at most cannot be merged into ones of " +
                                                 std::to_string(max_values_) + "; use the same number for all");
    }
    segments = other.segments_;
    level = other.level_;
    samples = other.samples_;
    invalid = other.invalid_;
  }
  std::scoped_lock lock(mutex_);
  if (level > level_) {
    level_ = level;
    std::erase_if(segments_, [&](const auto& entry) { return !IsKept(entry.first, level_); });
  }
  for (const auto& [value, sums] : segments) Add(value, sums);
  samples_ += samples;
  invalid_ += invalid;
}

std::vector<SegmentRow> SegmentMetrics::SortedRows() const {
  std::vector<SegmentRow> rows;
  rows.reserve(segments_.size());
  for (const auto& [value, sums] : segments_) rows.push_back({value, sums});
  std::sort(rows.begin(), rows.end(), [](const SegmentRow& a, const SegmentRow& b) { return a.value < b.value; });
  return rows;
}

std::vector<SegmentRow> SegmentMetrics::Rows() const {
  std::scoped_lock lock(mutex_);
  return SortedRows();
}

uint32_t SegmentMetrics::level() const {
  std::scoped_lock lock(mutex_);
  return level_;
}

uint64_t SegmentMetrics::samples() const {
  std::scoped_lock lock(mutex_);
  return samples_;
}

uint64_t SegmentMetrics::invalid() const {
  std::scoped_lock lock(mutex_);
  return invalid_;
}

}  // namespace elasticctr::metric
