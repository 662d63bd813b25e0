// The mean AUC within groups (GAUC), for example by user: how well a model orders what one user saw.
//
// Keeps every sample, 20 bytes each: an exact AUC within a group needs them all. Mergeable like BinaryMetrics: samples
// are put in one order before anything is computed or saved.
//
// Threads: every method may be called from several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace elasticctr::metric {

struct GroupedAuc {
  double auc;          // mean over groups, weighted by their impressions; NaN without a group of both classes
  uint64_t groups;     // with both classes: those in the mean
  uint64_t skipped;    // with one class only
  double impressions;  // weight of the groups in the mean
  uint64_t invalid;    // samples left out: NaN score, bad label or weight
};

struct GroupedRanking {
  double ndcg;  // means over groups, each counting the same; NaN without a group that has a positive
  double recall;
  uint64_t groups;   // with a positive: those in the means
  uint64_t skipped;  // without one
};

// One group alone.
struct GroupRow {
  uint64_t group;
  uint64_t samples;
  double weight;
  double positive;   // weight of the positive ones
  double auc;        // NaN with one class only
  double deviation;  // standard deviation of `auc` after DeLong; NaN with fewer than two samples of a class
};

class GroupAuc {
 public:
  // `weights` may be null: 1 each. The arrays hold n items. Scores may be logits or probabilities.
  void Update(const uint64_t* groups, const float* scores, const float* labels, const float* weights, size_t n);
  void Merge(const GroupAuc& other);
  GroupedAuc Compute() const;
  // NDCG and recall of the k best scored samples of each group. A sample's gain is label × weight; weight 0 leaves it
  // out. Samples of one score count as their mean over all orders. REQUIRES: k >= 1.
  GroupedRanking Rank(size_t k) const;
  // Groups of at least `min_samples` samples, in ascending order.
  std::vector<GroupRow> Rows(uint64_t min_samples) const;
  size_t samples() const;

  // Bytes for a checkpoint, the same for equal accumulators. docs/reference/model-metrics.md is their specification.
  std::string State() const;
  // Replaces everything by a saved state. Throws Corruption if the bytes are not one.
  void Restore(std::string_view state);

 private:
  struct Sample {
    uint32_t group_high;  // halves, so that a sample needs no padding
    uint32_t group_low;
    uint32_t order;  // OrderedBits of the score
    float label;
    float weight;
  };
  static_assert(sizeof(Sample) == 20);

  // REQUIRES: mutex_ held.
  void Sort() const;
  // One past the last sample of the group that begins at `first`. REQUIRES: sorted.
  size_t EndOfGroup(size_t first) const;

  mutable std::mutex mutex_;
  mutable std::vector<Sample> samples_;
  mutable bool is_sorted_ = true;
  uint64_t invalid_ = 0;
};

}  // namespace elasticctr::metric
