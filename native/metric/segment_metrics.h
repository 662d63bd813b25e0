// Sums per value of one slot, from which calibration and loss of each value (a "segment" of the samples) are computed.
//
// Memory is bounded: of more than `max_values` values, those with a small hash are kept, half of them, a quarter, …
// (`level` halvings), until they fit; about 150 bytes each. The choice depends on the values alone, and a kept value
// has all of its samples. Accumulators therefore merge exactly, in any order: merged ones equal one that saw
// everything, bit for bit, like BinaryMetrics.
//
// Threads: every method may be called from several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "metric/pairs.h"
#include "util/hash.h"

namespace elasticctr::metric {

struct Segment {
  uint64_t samples = 0;
  uint64_t weight = 0;  // in 2^-20
  uint64_t positive = 0;
  UInt128 predicted = 0;      // weighted, in 2^-30
  UInt128 loss = 0;           // weighted, in 2^-30
  UInt128 square_weight = 0;  // sum of weight^2, in 2^-20
  UInt128 square_loss = 0;    // sum of weight^2 × loss, in 2^-20
  UInt128 square_square = 0;  // sum of weight^2 × loss^2, in 2^-20
  void Add(const Segment& other);
};

struct SegmentRow {
  uint64_t value;
  Segment sums;
};

class SegmentMetrics {
 public:
  // REQUIRES: max_values >= 1.
  explicit SegmentMetrics(size_t max_values) : max_values_(max_values) {}

  // Sample i has the values [offsets[i], offsets[i + 1]). It counts once for each distinct value, and for value 0 if it
  // has none. `weights` may be null: 1 each. REQUIRES: n + 1 offsets, ascending, within `values`.
  void Update(const uint64_t* values, const int32_t* offsets, const float* logits, const float* labels,
              const float* weights, size_t n);
  // Throws FailedPrecondition if `other` has another max_values.
  void Merge(const SegmentMetrics& other);

  // The values kept, in ascending order.
  std::vector<SegmentRow> Rows() const;
  // 2^-level of all values are kept.
  uint32_t level() const;
  uint64_t samples() const;  // valid ones, of values kept or not
  uint64_t invalid() const;

  // Bytes for a checkpoint, the same for equal accumulators. docs/reference/model-metrics.md is their specification.
  std::string State() const;
  // Replaces everything, max_values too. Throws Corruption if the bytes are not a state.
  void Restore(std::string_view state);

 private:
  struct Mixed {
    size_t operator()(uint64_t value) const { return static_cast<size_t>(Mix64(value)); }
  };
  static bool IsKept(uint64_t value, uint32_t level);
  // REQUIRES: mutex_ held.
  void Add(uint64_t value, const Segment& sums);
  std::vector<SegmentRow> SortedRows() const;

  mutable std::mutex mutex_;
  size_t max_values_;
  uint32_t level_ = 0;
  uint64_t samples_ = 0;
  uint64_t invalid_ = 0;
  std::unordered_map<uint64_t, Segment, Mixed> segments_;
};

}  // namespace elasticctr::metric
