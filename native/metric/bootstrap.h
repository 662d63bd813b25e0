// Poisson bootstrap of AUC and logloss: how much they would vary on other samples of the same kind. Given the scores of
// a second model for the same samples, also how much the difference varies, which is far more certain than either
// alone.
//
// Keeps every sample, 16 bytes each (about 50 while drawing). In a replicate each sample counts Poisson(1) times,
// decided by the seed, the replicate and the sample's position in one order of all samples: the same samples give the
// same replicates however they were split over batches, threads and machines.
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

// NaN: AUC of one class, logloss without samples, and the second model's values if there is none.
struct Replicate {
  double auc;
  double logloss;
  double other_auc;
  double other_logloss;
};

class Bootstrap {
 public:
  explicit Bootstrap(bool is_paired) : is_paired_(is_paired) {}

  // `others` (logits of the second model) must be given if and only if paired. `weights` may be null: 1 each.
  void Update(const float* logits, const float* others, const float* labels, const float* weights, size_t n);
  // Throws FailedPrecondition if only one of the two is paired.
  void Merge(const Bootstrap& other);

  // Counts every sample once: the metrics themselves, with an exact AUC.
  Replicate Estimate() const;
  std::vector<Replicate> Draw(size_t replicates, uint64_t seed) const;

  bool is_paired() const { return is_paired_; }
  size_t samples() const;
  uint64_t invalid() const;  // left out: NaN score, bad label or weight

  // Bytes for a checkpoint, the same for equal accumulators. docs/reference/model-metrics.md is their specification.
  std::string State() const;
  // Replaces everything by a saved state. Throws Corruption if the bytes are not one, FailedPrecondition if it is
  // paired and this is not, or the other way round.
  void Restore(std::string_view state);

 private:
  struct Sample {
    uint32_t order;  // OrderedBits of the logits
    uint32_t other_order;
    float label;
    float weight;
  };
  static_assert(sizeof(Sample) == 16);
  class Drawing;

  // REQUIRES: mutex_ held.
  void Sort() const;

  const bool is_paired_;
  mutable std::mutex mutex_;
  mutable std::vector<Sample> samples_;
  mutable bool is_sorted_ = true;
  uint64_t invalid_ = 0;
};

}  // namespace elasticctr::metric
