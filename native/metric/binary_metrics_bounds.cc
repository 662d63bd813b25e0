// Metrics from the histogram other than AUC, and the largest error its buckets can cause.
#include <algorithm>
#include <cmath>
#include <limits>

#include "metric/binary_metrics.h"

namespace elasticctr::metric {

double BinaryMetrics::AucBound() const {
  std::scoped_lock lock(mutex_);
  if (totals_.positive == 0 || totals_.negative == 0) return std::numeric_limits<double>::quiet_NaN();
  UInt128 tied = 0;
  for (const Bucket& bucket : buckets_) tied += static_cast<UInt128>(bucket.positive) * bucket.negative;
  const UInt128 pairs = static_cast<UInt128>(totals_.positive) * totals_.negative;
  return static_cast<double>(tied) / static_cast<double>(pairs) / 2.0;
}

Bounded BinaryMetrics::AveragePrecision() const {
  std::scoped_lock lock(mutex_);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  if (totals_.positive == 0) return {nan, nan};
  const double all = static_cast<double>(totals_.positive);
  double sum = 0.0;
  double bound = 0.0;
  double positive = 0.0;  // above the current bucket
  double negative = 0.0;
  for (size_t b = buckets_.size(); b-- > 0;) {
    const double p = static_cast<double>(buckets_[b].positive);
    const double n = static_cast<double>(buckets_[b].negative);
    if (p > 0.0) {
      // The bucket's positives all first, all at one threshold, or all last.
      const double best = (positive + p) / (positive + p + negative);
      const double tied = (positive + p) / (positive + p + negative + n);
      const double worst = positive + negative + n > 0.0 ? positive / (positive + negative + n) : 1.0;
      sum += p / all * tied;
      bound += p / all * std::max(best - tied, tied - worst);
    }
    positive += p;
    negative += n;
  }
  return {sum, bound};
}

double BinaryMetrics::CalibrationError(size_t bins, bool equal_weight) const {
  double total = 0.0;
  double error = 0.0;
  for (const CalibrationBin& bin : Calibration(bins, equal_weight)) {
    total += bin.weight;
    error += std::abs(bin.positive - bin.predicted * bin.weight);
  }
  return total > 0.0 ? error / total : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace elasticctr::metric
