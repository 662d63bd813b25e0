// Address space for the rows of a table: one contiguous region per shard, reserved at once and given memory
// as rows are made. Rows therefore never move and a row's address is base + number * stride.
//
// Threads: Commit and Shrink of different shards may run at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace elasticctr {

class RowArena {
 public:
  // Reserves `shards` regions of up to max_rows rows of `stride` bytes. Where the system limits address space,
  // regions become smaller. Throws Error(kInternal) if even small ones are refused.
  RowArena(size_t shards, size_t stride, size_t max_rows);
  ~RowArena();
  RowArena(const RowArena&) = delete;
  RowArena& operator=(const RowArena&) = delete;

  size_t region_rows() const { return region_rows_; }
  std::byte* base() const { return base_; }

  // Makes the first `rows` rows of a shard usable; new ones are zero. Throws Error(kInternal) when memory or
  // the region is exhausted.
  void Commit(size_t shard, size_t rows);
  // Gives memory past the first `rows` rows back; what stays below is untouched.
  void Shrink(size_t shard, size_t rows);

  // Bytes given to shards so far.
  size_t committed_bytes() const;

 private:
  std::byte* Region(size_t shard) const { return base_ + shard * region_bytes_; }
  void AdviseHugePages(size_t shard, size_t bytes);

  size_t stride_;
  size_t region_rows_ = 0;
  size_t region_bytes_ = 0;
  size_t reserved_bytes_ = 0;
  std::byte* mapping_ = nullptr;
  std::byte* base_ = nullptr;
  std::vector<size_t> committed_;  // bytes per shard, whole pages
};

}  // namespace elasticctr
