#include "metric/binary_metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace elasticctr::metric {
namespace {

const std::array<float, kBlock> kOnes = [] {
  std::array<float, kBlock> ones;
  ones.fill(1.0f);
  return ones;
}();

double Probability(double logit) { return 1.0 / (1.0 + std::exp(-logit)); }

}  // namespace

Totals& Totals::operator+=(const Totals& other) {
  samples += other.samples;
  invalid_scores += other.invalid_scores;
  invalid_labels += other.invalid_labels;
  positive += other.positive;
  negative += other.negative;
  loss += other.loss;
  predicted += other.predicted;
  return *this;
}

BinaryMetrics::BinaryMetrics() : buckets_(kScoreBuckets) {}

void BinaryMetrics::Add(const float* logits, const float* labels, const float* weights, size_t n) {
  Block block;
  const Invalid invalid = ComputeBlock(logits, labels, weights, n, &block);
  totals_.samples += n - invalid.scores - invalid.labels;
  totals_.invalid_scores += invalid.scores;
  totals_.invalid_labels += invalid.labels;
  totals_.loss += block.loss;
  totals_.predicted += block.predicted;
  uint64_t positive = 0;
  uint64_t negative = 0;
  for (size_t i = 0; i < n; ++i) {
    Bucket& bucket = buckets_[block.bucket[i]];
    bucket.negative += block.negative[i];
    bucket.positive += block.positive[i];
    negative += block.negative[i];
    positive += block.positive[i];
  }
  totals_.negative += negative;
  totals_.positive += positive;
}

void BinaryMetrics::Update(const float* logits, const float* labels, const float* weights, size_t n) {
  std::scoped_lock lock(mutex_);
  for (size_t i = 0; i < n; i += kBlock) {
    Add(logits + i, labels + i, weights ? weights + i : kOnes.data(), std::min(kBlock, n - i));
  }
}

void BinaryMetrics::UpdateScores(const float* scores, const float* labels, const float* weights, size_t n) {
  std::scoped_lock lock(mutex_);
  float logits[kBlock];
  for (size_t i = 0; i < n; i += kBlock) {
    const size_t size = std::min(kBlock, n - i);
    LogitsOfScores(scores + i, size, logits);
    Add(logits, labels + i, weights ? weights + i : kOnes.data(), size);
  }
}

void BinaryMetrics::Merge(const BinaryMetrics& other) {
  Totals totals;
  std::vector<Bucket> buckets;
  {
    std::scoped_lock lock(other.mutex_);
    totals = other.totals_;
    buckets = other.buckets_;
  }
  std::scoped_lock lock(mutex_);
  totals_ += totals;
  for (size_t b = 0; b < buckets.size(); ++b) buckets_[b] += buckets[b];
}

void BinaryMetrics::Reset() {
  std::scoped_lock lock(mutex_);
  Clear();
}

void BinaryMetrics::Clear() {
  totals_ = {};
  std::fill(buckets_.begin(), buckets_.end(), Bucket{});
}

Totals BinaryMetrics::totals() const {
  std::scoped_lock lock(mutex_);
  return totals_;
}

double BinaryMetrics::Auc() const {
  std::scoped_lock lock(mutex_);
  if (totals_.positive == 0 || totals_.negative == 0) return std::numeric_limits<double>::quiet_NaN();
  UInt128 twice_won = 0;
  uint64_t negative_below = 0;
  for (const Bucket& bucket : buckets_) {
    twice_won += static_cast<UInt128>(bucket.positive) * (2 * negative_below + bucket.negative);
    negative_below += bucket.negative;
  }
  const UInt128 pairs = static_cast<UInt128>(totals_.positive) * totals_.negative;
  return static_cast<double>(twice_won) / static_cast<double>(pairs) / 2.0;
}

std::vector<std::pair<double, double>> BinaryMetrics::Roc(size_t max_points) const {
  std::scoped_lock lock(mutex_);
  std::vector<std::pair<double, double>> points;
  if (totals_.positive == 0 || totals_.negative == 0) return points;
  const double positives = static_cast<double>(totals_.positive);
  const double negatives = static_cast<double>(totals_.negative);
  const double step = 2.0 / static_cast<double>(std::max<size_t>(max_points, 2) - 1);
  points.emplace_back(0.0, 0.0);
  uint64_t positive = 0;
  uint64_t negative = 0;
  for (size_t b = buckets_.size(); b-- > 0;) {
    positive += buckets_[b].positive;
    negative += buckets_[b].negative;
    const double x = static_cast<double>(negative) / negatives;
    const double y = static_cast<double>(positive) / positives;
    if (x + y - points.back().first - points.back().second >= step) points.emplace_back(x, y);
  }
  if (points.back() != std::pair(1.0, 1.0)) points.emplace_back(1.0, 1.0);
  return points;
}

std::vector<CalibrationBin> BinaryMetrics::Calibration(size_t bins, bool equal_weight) const {
  std::scoped_lock lock(mutex_);
  std::vector<CalibrationBin> rows;
  const double total = static_cast<double>(totals_.positive + totals_.negative);
  uint64_t before = 0;
  size_t current = bins;  // none yet
  for (int32_t b = 0; b < kScoreBuckets; ++b) {
    const uint64_t weight = buckets_[b].negative + buckets_[b].positive;
    if (weight == 0) continue;
    const double p = Probability(LogitOfBucket(b));
    // A bucket belongs to the bin of its middle.
    const double position =
        equal_weight ? (static_cast<double>(before) + 0.5 * static_cast<double>(weight)) / total : p;
    const size_t bin = std::min(bins - 1, static_cast<size_t>(position * static_cast<double>(bins)));
    if (bin != current) {
      rows.push_back({p, p, 0.0, 0.0, 0.0});
      current = bin;
    }
    CalibrationBin& row = rows.back();
    row.upper = p;
    row.weight += static_cast<double>(weight);
    row.positive += static_cast<double>(buckets_[b].positive);
    row.predicted += p * static_cast<double>(weight);
    before += weight;
  }
  for (CalibrationBin& row : rows) {
    row.predicted /= row.weight;
    row.weight /= kWeightOne;
    row.positive /= kWeightOne;
  }
  return rows;
}

}  // namespace elasticctr::metric
