#include "table/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <string>

#include "util/status.h"

namespace elasticctr {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr uint64_t kMaxRows = uint64_t{1} << 32;
constexpr size_t kMinReserved = size_t{1} << 26;
#ifdef __SANITIZE_THREAD__
constexpr size_t kMaxReserved = size_t{1} << 36;  // the sanitizer reserves most addresses
#else
constexpr size_t kMaxReserved = size_t{1} << 44;  // 16 TiB of the 128 TiB a process can address
#endif

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

RowArena::RowArena(size_t stride) : stride_(stride) {
  for (size_t bytes = std::min(RoundUp(kMaxRows * stride, kHugePage), kMaxReserved);; bytes /= 2) {
    void* p = mmap(nullptr, bytes + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p != MAP_FAILED) {
      mapping_ = static_cast<std::byte*>(p);
      reserved_bytes_ = bytes;
      break;
    }
    if (bytes <= kMinReserved) {
      throw Error(Code::kInternal, "no address space for a table; lift the limit on virtual memory (ulimit -v)");
    }
  }
  base_ = reinterpret_cast<std::byte*>(RoundUp(reinterpret_cast<size_t>(mapping_), kHugePage));
  Commit(kExtentRows * stride_);
}

RowArena::~RowArena() { munmap(mapping_, reserved_bytes_ + kHugePage); }

void RowArena::Commit(size_t bytes) {
  if (bytes <= committed_bytes_) return;
  // Commits a sixteenth in advance, so that calls are rare; pages take no memory before they are touched.
  const size_t goal = std::min(RoundUp(bytes + bytes / 16, kHugePage), reserved_bytes_);
  if (bytes > goal) {
    throw Error(Code::kInternal, "the table is full: the system lends it addresses for " +
                                     std::to_string(reserved_bytes_ / stride_) +
                                     " rows; admit fewer feasigns, evict rows or lift ulimit -v");
  }
  std::byte* from = base_ + committed_bytes_;
  if (mprotect(from, goal - committed_bytes_, PROT_READ | PROT_WRITE) != 0) {
    throw Error(Code::kInternal, "out of memory for table rows; admit fewer feasigns or evict rows");
  }
#ifdef MADV_HUGEPAGE
  // Not for the first two megabytes, which would make a small table large.
  if (committed_bytes_ >= kHugePage) madvise(from, goal - committed_bytes_, MADV_HUGEPAGE);
#endif
  committed_bytes_ = goal;
}

uint32_t RowArena::Take() {
  std::lock_guard lock(mutex_);
  if (!returned_.empty()) {
    const uint32_t extent = returned_.back();
    returned_.pop_back();
    return extent;
  }
  if (next_ + kExtentRows > kMaxRows) {
    throw Error(Code::kInternal, "the table is full at 2^32 rows; admit fewer feasigns or evict rows");
  }
  Commit((next_ + kExtentRows) * stride_);
  const auto extent = static_cast<uint32_t>(next_);
  next_ += kExtentRows;
  return extent;
}

void RowArena::Return(uint32_t extent) {
  std::lock_guard lock(mutex_);
  returned_.push_back(extent);
}

void RowArena::Reset() {
  std::lock_guard lock(mutex_);
  madvise(base_, committed_bytes_, MADV_DONTNEED);
  next_ = kExtentRows;
  returned_.clear();
}

}  // namespace elasticctr
