// Running metrics of a binary classifier, exactly mergeable: however samples are ordered and grouped over batches,
// threads and machines, merged accumulators equal one that saw everything, bit for bit. All sums are integers
// (loss_kernel.h); AUC comes from a histogram over fixed buckets (score_bucket.h).
//
// A label may be any fraction in [0, 1]: it counts as that part positive and the rest negative.
// Samples with a NaN score or a bad label or weight are counted and otherwise ignored.
//
// Threads: every method may be called from several threads. About 7 MiB each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "metric/loss_kernel.h"
#include "metric/pairs.h"
#include "metric/score_bucket.h"

namespace elasticctr::metric {

struct Totals {
  uint64_t samples = 0;  // the valid ones
  uint64_t invalid_scores = 0;
  uint64_t invalid_labels = 0;
  uint64_t positive = 0;  // weight, in 2^-20
  uint64_t negative = 0;
  UInt128 loss = 0;  // weighted, in 2^-30
  UInt128 predicted = 0;

  Totals& operator+=(const Totals& other);
};

struct CalibrationBin {
  double lower;  // smallest and largest predicted probability in it
  double upper;
  double weight;     // of all samples in it
  double positive;   // of the positive ones
  double predicted;  // mean predicted probability
};

// A value computed from the histogram, and its largest possible distance from the value computed from exact logits.
struct Bounded {
  double value;
  double bound;
};

class BinaryMetrics {
 public:
  BinaryMetrics();

  // `weights` may be null: 1 each. The arrays hold n floats.
  void Update(const float* logits, const float* labels, const float* weights, size_t n);
  // The same for probabilities.
  void UpdateScores(const float* scores, const float* labels, const float* weights, size_t n);
  void Merge(const BinaryMetrics& other);
  void Reset();

  Totals totals() const;
  // Area under the ROC curve, ties counting half. NaN when only one class was seen.
  double Auc() const;
  // The largest error of Auc() due to ties between logits of one bucket: half of the share of tied pairs.
  double AucBound() const;
  // Area under the precision-recall curve as average precision: the mean over positives of the precision at their
  // score, equal scores being one threshold. NaN without a positive. Its bound covers any order within buckets.
  Bounded AveragePrecision() const;
  // Expected calibration error: mean over samples of |actual - predicted| rate of their bin. Bins as in Calibration.
  // NaN without samples. REQUIRES: bins >= 1.
  double CalibrationError(size_t bins, bool equal_weight) const;
  // (false positive rate, true positive rate), from (0, 0) to (1, 1), at most about max_points of them.
  // Empty when only one class was seen.
  std::vector<std::pair<double, double>> Roc(size_t max_points) const;
  // Bins of equal width over [0, 1], or of equal weight; empty ones are left out. Bin borders and mean predictions
  // are those of the fine buckets, so predictions are exact to about 1 in 10,000. REQUIRES: bins >= 1.
  std::vector<CalibrationBin> Calibration(size_t bins, bool equal_weight) const;

  // Bytes for a checkpoint, the same for equal accumulators. docs/reference/model-metrics.md is their specification.
  std::string State() const;
  // Returns the same bytes and starts over.
  std::string Take();
  // Replaces everything by a saved state. Throws Corruption if the bytes are not one, FailedPrecondition if they are of
  // a later version; on an error nothing changes.
  void Restore(std::string_view state);
  // Adds a saved state, in time that grows with what is in it. Throws as Restore does.
  void MergeState(std::string_view state);
  // Throws what Restore would.
  static void CheckState(std::string_view state);

 private:
  struct Bucket {
    uint64_t negative = 0;
    uint64_t positive = 0;

    Bucket& operator+=(const Bucket& other) {
      negative += other.negative;
      positive += other.positive;
      return *this;
    }
  };
  struct Saved;

  // The following four REQUIRE: mutex_ held.
  void Clear();
  void Add(const Saved& saved);
  std::string Encode() const;
  void Add(const float* logits, const float* labels, const float* weights, size_t n);

  mutable std::mutex mutex_;
  Totals totals_;
  std::vector<Bucket> buckets_;
};

}  // namespace elasticctr::metric
