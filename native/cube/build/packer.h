// Packs feasigns, in the order of their places, into buckets: each into its home or the first later bucket with room.
#pragma once

#include <cstring>

#include "cube/index/format.h"

namespace elasticctr::cube {

// Emit(const Bucket&) is called once per bucket, in order.
template <typename Emit>
class Packer {
 public:
  Packer(uint64_t homes, Emit emit) : homes_(homes), emit_(emit) { Clear(); }

  // REQUIRES: places are in ascending order; equal ones are allowed.
  void Add(uint64_t place, uint64_t feasign, bool is_dead) {
    const uint64_t home = HomeOf(place, homes_);
    if (home > index_) {
      while (index_ < home) Flush(false);
    } else if (bucket_.count == Bucket::kFeasigns) {
      Flush(true);
    }
    bucket_.dead = static_cast<uint8_t>(bucket_.dead | (is_dead ? 1u << bucket_.count : 0u));
    bucket_.feasigns[bucket_.count++] = feasign;
    rows_ += is_dead ? 0 : 1;
    tombstones_ += is_dead ? 1 : 0;
  }

  // Emits the remaining buckets. Returns the number of buckets.
  uint64_t Finish() {
    while (index_ < homes_ || bucket_.count > 0) Flush(false);
    return index_;
  }

  uint64_t rows() const { return rows_; }
  uint64_t tombstones() const { return tombstones_; }

 private:
  void Flush(bool spilled) {
    bucket_.spilled = spilled ? 1 : 0;
    emit_(bucket_);
    ++index_;
    Clear();
  }
  void Clear() {
    std::memset(&bucket_, 0, sizeof bucket_);
    bucket_.first_row_low = static_cast<uint32_t>(rows_);
    bucket_.first_row_high = static_cast<uint8_t>(rows_ >> 32);
  }

  uint64_t homes_;
  Emit emit_;
  Bucket bucket_;
  uint64_t index_ = 0;
  uint64_t rows_ = 0;
  uint64_t tombstones_ = 0;
};

}  // namespace elasticctr::cube
