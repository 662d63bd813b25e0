// Memory for the rows of a table: one reserved range of addresses that is given memory as it fills, in huge pages
// where the system has them. Rows therefore never move and a row's address is base + number * stride.
// Shards take rows by the extent (64 rows), so their rows interleave and small shards waste little.
//
// Threads: Take and Return may be called from several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace elasticctr {

class RowArena {
 public:
  static constexpr uint32_t kExtentRows = 64;

  // Reserves room for 2^32 rows, or fewer where the system limits address space. Throws Error(kInternal) if even
  // a little is refused.
  explicit RowArena(size_t stride);
  ~RowArena();
  RowArena(const RowArena&) = delete;
  RowArena& operator=(const RowArena&) = delete;

  // Row 0 is all zeros and belongs to no feasign: feasigns without a row read it.
  std::byte* base() const { return base_; }

  // The number of the first row of an extent for the caller alone; contents are undefined. Throws Error(kInternal)
  // when memory is exhausted.
  uint32_t Take();
  void Return(uint32_t extent);
  // Past the highest number of any row taken so far.
  uint64_t end() const { return next_; }
  // Forgets all extents and gives their memory back.
  void Reset();

 private:
  void Commit(size_t bytes);

  const size_t stride_;
  size_t reserved_bytes_ = 0;
  size_t committed_bytes_ = 0;
  std::byte* mapping_ = nullptr;
  std::byte* base_ = nullptr;
  std::mutex mutex_;
  uint64_t next_ = kExtentRows;  // row number of the first extent never taken
  std::vector<uint32_t> returned_;
};

}  // namespace elasticctr
