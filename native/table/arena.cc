#include "table/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <string>

#include "util/status.h"

namespace elasticctr {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;
#ifdef __SANITIZE_THREAD__
constexpr size_t kMaxReserved = size_t{1} << 38;  // the sanitizer keeps most addresses for itself
#else
constexpr size_t kMaxReserved = size_t{1} << 44;  // 16 TiB of the 128 TiB a process can address
#endif
constexpr size_t kMinRows = 4096;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

// Regions are whole numbers of rows, so that row numbers run on from one region to the next, and also of pages,
// so that shards share none.
RowArena::RowArena(size_t shards, size_t stride, size_t max_rows) : stride_(stride), committed_(shards, 0) {
  size_t rows = std::min(RoundUp(max_rows, kPage), kMaxReserved / shards / stride / kPage * kPage);
  for (rows = std::max(rows, kMinRows);; rows = RoundUp(rows / 2, kPage)) {
    const size_t bytes = shards * rows * stride + kHugePage;
    void* p = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p != MAP_FAILED) {
      mapping_ = static_cast<std::byte*>(p);
      reserved_bytes_ = bytes;
      break;
    }
    if (rows <= kMinRows) {
      throw Error(Code::kInternal, "no address space for a table of " + std::to_string(stride) +
                                       "-byte rows; lift the limit on virtual memory (ulimit -v)");
    }
  }
  region_rows_ = rows;
  region_bytes_ = rows * stride;
  base_ = reinterpret_cast<std::byte*>(RoundUp(reinterpret_cast<size_t>(mapping_), kHugePage));
#ifdef MADV_NOHUGEPAGE
  // A huge page per shard would make small tables large; AdviseHugePages asks for them where a shard fills them.
  madvise(mapping_, reserved_bytes_, MADV_NOHUGEPAGE);
#endif
}

RowArena::~RowArena() {
  if (mapping_ != nullptr) munmap(mapping_, reserved_bytes_);
}

void RowArena::Commit(size_t shard, size_t rows) {
  size_t& committed = committed_[shard];
  const size_t needed = rows * stride_;
  if (needed <= committed) return;
  if (rows > region_rows_) {
    throw Error(Code::kInternal, "a shard of the table is full at " + std::to_string(region_rows_) +
                                     " rows; admit fewer feasigns, evict rows or use more tables");
  }
  // Ahead by an eighth, so that calls are few and unused address space small. Pages cost memory once touched.
  const size_t bytes = std::min(RoundUp(std::max(needed + needed / 8, 4 * kPage), kPage), region_bytes_);
  if (mprotect(Region(shard) + committed, bytes - committed, PROT_READ | PROT_WRITE) != 0) {
    throw Error(Code::kInternal, "out of memory for table rows; admit fewer feasigns or evict rows");
  }
  AdviseHugePages(shard, bytes);
  committed = bytes;
}

void RowArena::AdviseHugePages(size_t shard, size_t bytes) {
#ifdef MADV_HUGEPAGE
  const size_t region = reinterpret_cast<size_t>(Region(shard));
  const size_t first = RoundUp(region, kHugePage);
  const size_t last = (region + bytes) / kHugePage * kHugePage;
  if (last >= first + kHugePage) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#else
  (void)shard, (void)bytes;
#endif
}

void RowArena::Shrink(size_t shard, size_t rows) {
  const size_t keep = RoundUp(rows * stride_, kPage);
  if (keep < committed_[shard]) madvise(Region(shard) + keep, committed_[shard] - keep, MADV_DONTNEED);
}

size_t RowArena::committed_bytes() const {
  size_t sum = 0;
  for (const size_t bytes : committed_) sum += bytes;
  return sum;
}

}  // namespace elasticctr
