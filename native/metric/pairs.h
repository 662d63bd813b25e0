// Counts, in integers, the pairs of a positive and a negative sample that a score orders correctly.
#pragma once

#include <cstdint>
#include <limits>

#include "metric/loss_kernel.h"

namespace elasticctr::metric {

using UInt128 = unsigned __int128;

inline bool IsValid(float score, float label, float weight) {
  return score == score && label >= 0.0f && label <= 1.0f && weight >= 0.0f && weight <= kMaxWeight;
}

struct SplitOfWeight {
  uint64_t positive;  // in 2^-20
  uint64_t negative;
};

// REQUIRES: IsValid(…).
inline SplitOfWeight SplitWeight(float label, float weight) {
  const auto all = static_cast<uint64_t>(weight * kWeightOne + 0.5);
  const auto positive = static_cast<uint64_t>(static_cast<double>(all) * label + 0.5);
  return {positive, all - positive};
}

// Add samples by rising score; those of the same score in any order.
class PairCounter {
 public:
  // REQUIRES: IsValid(…), and order is not below the one before.
  void Add(uint32_t order, float label, float weight) {
    const auto [positive, negative] = SplitWeight(label, weight);
    AddIntegers(order, positive, negative);
  }
  void AddIntegers(uint32_t order, uint64_t positive, uint64_t negative) {
    if (order != order_) Close();
    order_ = order;
    tied_positive_ += positive;
    tied_negative_ += negative;
  }

  // NaN without a pair.
  double Auc() {
    Close();
    if (positive_ == 0 || negative_ == 0) return std::numeric_limits<double>::quiet_NaN();
    const UInt128 pairs = static_cast<UInt128>(positive_) * negative_;
    return static_cast<double>(twice_won_) / static_cast<double>(pairs) / 2.0;
  }

  // Weight of everything added, in 2^-20. Call after Auc().
  uint64_t weight() const { return positive_ + negative_; }

 private:
  // Samples of one score tie: each of their pairs counts half.
  void Close() {
    twice_won_ += static_cast<UInt128>(tied_positive_) * (2 * negative_ + tied_negative_);
    positive_ += tied_positive_;
    negative_ += tied_negative_;
    tied_positive_ = tied_negative_ = 0;
  }

  uint32_t order_ = 0;
  uint64_t tied_positive_ = 0;
  uint64_t tied_negative_ = 0;
  uint64_t positive_ = 0;
  uint64_t negative_ = 0;
  UInt128 twice_won_ = 0;
};

}  // namespace elasticctr::metric
