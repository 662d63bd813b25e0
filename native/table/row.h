// The layout of a row, and the only place that knows it:
//   key u64 | show f32 | click f32 | last_seen u31, touched bit | weights of all segments | optimizer state of all
//   segments
// The counters exist only if the table keeps them. The touched bit says that the row changed since the table's last
// mark: it is in a word that a push writes anyway, so noting a change costs nothing. Weights come before all state so
// that a pull reads the fewest cache lines; a row of 9 weights with Adam is exactly 128 bytes, with all weights in the
// first 64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "table/settings.h"

namespace elasticctr {

struct Counters {
  float show = 0.0f;
  float click = 0.0f;
  uint32_t last_seen = 0;
};

// The offsets of one segment in a row, in bytes from the row's start.
struct SegmentLayout {
  uint32_t dim;
  uint32_t weights;
  uint32_t state;
  uint32_t column;  // of its first weight among all weights of the row
};

class RowLayout {
 public:
  explicit RowLayout(const TableSettings& settings);

  size_t stride() const { return stride_; }                // bytes from one row to the next
  size_t used_bytes() const { return used_bytes_; }        // without padding
  uint32_t weights_dim() const { return weights_dim_; }    // floats of all segments' weights
  uint32_t state_floats() const { return state_floats_; }  // floats of all segments' optimizer state
  uint32_t weights_offset() const { return weights_offset_; }
  bool has_counters() const { return has_counters_; }
  const std::vector<SegmentLayout>& segments() const { return segments_; }

  // What a file must match to be loaded into a table: names, widths and optimizers, as one line of JSON.
  const std::string& description() const { return description_; }

  static uint64_t Key(const std::byte* row) {
    uint64_t key;
    std::memcpy(&key, row, sizeof key);
    return key;
  }
  static void SetKey(std::byte* row, uint64_t key) { std::memcpy(row, &key, sizeof key); }
  static float* Floats(std::byte* row, size_t offset) { return reinterpret_cast<float*>(row + offset); }
  static const float* Floats(const std::byte* row, size_t offset) {
    return reinterpret_cast<const float*>(row + offset);
  }

  // REQUIRES, all below: has_counters().
  static Counters GetCounters(const std::byte* row) {
    Counters counters = *reinterpret_cast<const Counters*>(row + kCountersOffset);
    counters.last_seen &= ~kTouched;
    return counters;
  }
  // For modification. `last_seen` holds the touched bit.
  static Counters* MutableCounters(std::byte* row) { return reinterpret_cast<Counters*>(row + kCountersOffset); }
  static bool IsTouched(const std::byte* row) {
    return (reinterpret_cast<const Counters*>(row + kCountersOffset)->last_seen & kTouched) != 0;
  }
  static void ClearTouched(std::byte* row) { MutableCounters(row)->last_seen &= ~kTouched; }

  static constexpr uint32_t kTouched = 1u << 31;

 private:
  static constexpr size_t kCountersOffset = 8;

  std::vector<SegmentLayout> segments_;
  std::string description_;
  size_t stride_ = 0;
  size_t used_bytes_ = 0;
  uint32_t weights_dim_ = 0;
  uint32_t state_floats_ = 0;
  uint32_t weights_offset_ = 0;
  bool has_counters_ = true;
};

static_assert(sizeof(Counters) == 12);

}  // namespace elasticctr
