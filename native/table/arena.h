// Memory for the rows of a table: one reserved address range that is backed by memory as it fills, with huge pages if
// the system has them. Rows therefore never move, and a row's address is base + number * stride.
// Shards allocate rows in extents of 64, so the extents of shards interleave and small shards waste little.
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

  // Returns the number of the first row of an extent that only the caller uses; its contents are undefined. Throws
  // Error(kInternal) when memory is exhausted.
  uint32_t Take();
  void Return(uint32_t extent);
  // One past the highest row number taken so far.
  uint64_t end() const { return next_; }
  // Releases all extents and their memory.
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
