// Where pull writes and push reads: for every slot of a lookup the array, the column of each segment in it, and how the
// values of a bag are pooled. Made once per model, used for every batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace elasticctr {

enum class PoolingKind : uint8_t {
  kSum = 0,
  kMean = 1,
  kFirst = 2,  // a sequence: the first `length` values
  kLast = 3,   // a sequence: the last `length` values
};

struct SlotTarget {
  uint32_t slot = 0;    // number in the batch
  uint32_t target = 0;  // number of the array
  PoolingKind pooling = PoolingKind::kSum;
  std::vector<int32_t> columns;  // one per segment of the table; -1: the slot does not use this segment
  uint32_t length = 0;           // of a sequence
};

// An array given to pull or push: float32 [samples, width] or, for a sequence, [samples, length, width]. Each sample is
// contiguous.
struct Target {
  float* data;
  size_t samples;
  size_t length;         // 0: the array is [samples, width]
  size_t width;          // columns
  size_t sample_stride;  // floats from one sample to the next
  size_t value_stride;   // floats from one value of a sequence to the next
};

class Layout {
 public:
  // Throws Error(kConfig) for a layout that contradicts itself. `dims` are the table's segment widths.
  Layout(std::vector<SlotTarget> slots, std::vector<uint32_t> dims);

  const std::vector<SlotTarget>& slots() const { return slots_; }
  const std::vector<uint32_t>& slot_numbers() const { return slot_numbers_; }
  const std::vector<uint32_t>& dims() const { return dims_; }
  size_t targets() const { return targets_; }
  bool has_sequences() const { return has_sequences_; }
  // Every slot has every segment, so every gradient sum covers all weights of a row.
  bool is_complete() const { return is_complete_; }

  // Throws Error(kFailedPrecondition) unless the arrays have the sizes that this layout and `samples` require.
  void CheckTargets(const std::vector<Target>& targets, size_t samples) const;

 private:
  std::vector<SlotTarget> slots_;
  std::vector<uint32_t> slot_numbers_;
  std::vector<uint32_t> dims_;
  size_t targets_ = 0;
  bool has_sequences_ = false;
  bool is_complete_ = true;
};

inline bool IsSequence(PoolingKind pooling) { return pooling >= PoolingKind::kFirst; }

}  // namespace elasticctr
