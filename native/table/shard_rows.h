// The rows of one shard, numbered from 1 in the order of creation, and the extents that hold them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "table/arena.h"

namespace elasticctr {

class ShardRows {
 public:
  uint32_t count() const { return count_; }
  size_t extent_bytes() const { return extents_.capacity() * sizeof(uint32_t); }

  // Maps this shard's row `local` to its number over the whole table; 0, the row of zeros, for 0.
  uint32_t Number(uint32_t local) const {
    if (local == 0) return 0;
    return extents_[(local - 1) / RowArena::kExtentRows] + (local - 1) % RowArena::kExtentRows;
  }

  // Room for one more row at the end; returns its local number.
  uint32_t Add(RowArena* arena) {
    if (count_ == extents_.size() * RowArena::kExtentRows) extents_.push_back(arena->Take());
    return ++count_;
  }

  // Keeps the first `count` rows.
  void Truncate(uint32_t count, RowArena* arena) {
    count_ = count;
    while (extents_.size() * RowArena::kExtentRows >= size_t{count} + RowArena::kExtentRows) {
      arena->Return(extents_.back());
      extents_.pop_back();
    }
  }

  void Clear() { *this = ShardRows(); }

 private:
  uint32_t count_ = 0;
  std::vector<uint32_t> extents_;  // row number of the first row of each
};

}  // namespace elasticctr
