// Rows and buckets of one index in memory, whatever their source: a file copied or mapped, or a merge.
#pragma once

#include <bit>
#include <cstdint>

#include "cube/index/format.h"

namespace elasticctr::cube {

struct Image {
  const uint8_t* rows = nullptr;
  const Bucket* buckets = nullptr;
  uint64_t homes = 0;
  uint64_t bucket_count = 0;
  uint64_t row_count = 0;
  uint64_t tombstones = 0;
  uint32_t row_bytes = 0;

  uint64_t entries() const { return row_count + tombstones; }

  static Image Of(const IndexInfo& info, const uint8_t* rows, const uint8_t* buckets) {
    return {
        rows,          reinterpret_cast<const Bucket*>(buckets), info.homes, info.buckets, info.rows, info.tombstones,
        info.row_bytes};
  }
};

// One feasign of an image or of a file to be written.
struct Entry {
  uint64_t place;
  uint64_t feasign;
  const uint8_t* row;  // null: a tombstone

  bool operator<(const Entry& other) const {
    return place != other.place ? place < other.place : feasign < other.feasign;
  }
};

// Iterates over an image in the order of places. REQUIRES: the image was checked, and outlives the cursor.
class Cursor {
 public:
  explicit Cursor(const Image& image) : image_(image) { Settle(); }

  bool is_done() const { return bucket_ == image_.bucket_count; }
  const Entry& entry() const { return entry_; }
  void Next() {
    if (entry_.row != nullptr) ++row_;
    ++position_;
    Settle();
  }

 private:
  void Settle() {
    while (bucket_ < image_.bucket_count && position_ >= image_.buckets[bucket_].count) {
      ++bucket_;
      position_ = 0;
    }
    if (is_done()) return;
    const Bucket& bucket = image_.buckets[bucket_];
    const uint64_t feasign = bucket.feasigns[position_];
    const bool dead = bucket.dead >> position_ & 1;
    entry_ = {PlaceOf(feasign), feasign, dead ? nullptr : image_.rows + row_ * image_.row_bytes};
  }

  Image image_;
  uint64_t bucket_ = 0;
  unsigned position_ = 0;
  uint64_t row_ = 0;
  Entry entry_{};
};

}  // namespace elasticctr::cube
