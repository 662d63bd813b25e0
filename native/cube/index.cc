#include "cube/index.h"

#include <cstring>

#include "cube/check.h"
#include "cube/packer.h"
#include "table/file.h"
#include "util/status.h"

namespace elasticctr::cube {
namespace {

Image ImageOf(const IndexInfo& info, const uint8_t* rows, const uint8_t* buckets) {
  return {rows,          reinterpret_cast<const Bucket*>(buckets), info.homes, info.buckets, info.rows, info.tombstones,
          info.row_bytes};
}

// Every entry of two images in order, the newer one's where both have it.
template <typename Take>
void Walk(const Image& newer, const Image& older, Take take) {
  Cursor a(newer), b(older);
  while (!a.is_done() || !b.is_done()) {
    if (b.is_done() || (!a.is_done() && !(b.entry() < a.entry()))) {
      if (!b.is_done() && b.entry().feasign == a.entry().feasign) b.Next();
      take(a.entry());
      a.Next();
    } else {
      take(b.entry());
      b.Next();
    }
  }
}

}  // namespace

std::shared_ptr<const Index> Index::Open(const std::string& path, Residence residence, Check check) {
  const File file = File::OpenForReading(path);
  const uint64_t bytes = file.Size();
  if (bytes < kPageBytes) throw Error(Code::kCorruption, path + ": not a cube file, or cut short; build it again");
  uint8_t page[kPageBytes];
  file.Read(page, kPageBytes, 0);
  const Header header = DecodeHeader(page, bytes, path);

  std::shared_ptr<Index> index(new Index);
  index->info_ = header.info;
  index->header_crc_ = header.crc;
  if (residence == Residence::kMapped) {
    index->region_ = Region::Map(path, bytes);
  } else {
    index->region_ = Region::Allocate(bytes);
    for (uint64_t offset = 0; offset < bytes; offset += kBlockBytes) {
      file.Read(index->region_.data() + offset, std::min<uint64_t>(kBlockBytes, bytes - offset), offset);
    }
    if (std::memcmp(index->region_.data(), page, kPageBytes) != 0) {
      throw Error(Code::kCorruption, path + ": changed while it was read; cube files are never written again");
    }
  }
  const uint8_t* data = index->region_.data();
  index->image_ = ImageOf(header.info, data + kPageBytes, data + header.buckets_offset);
  if (residence == Residence::kMemory || check == Check::kAll) {
    CheckBlocks(data, header, path);
    CheckBuckets(index->image_, header.info, path);
  }
  return index;
}

std::shared_ptr<const Index> Index::Merge(const Index& newer, const Index& older) {
  std::shared_ptr<Index> merged(new Index);
  IndexInfo& info = merged->info_;
  info = newer.info();
  info.kind = Kind::kDelta;
  info.parent = older.info().parent;
  info.rows = info.tombstones = info.file_bytes = 0;
  // Buckets are sized by what comes out, and deltas often hold the same feasigns: count first.
  Walk(newer.image(), older.image(), [&](const Entry& e) { ++(e.row == nullptr ? info.tombstones : info.rows); });
  info.homes = HomesFor(info.rows + info.tombstones);

  const uint64_t buckets_at = RoundUp(info.rows * info.row_bytes, sizeof(Bucket));
  const uint64_t most_buckets = info.homes + (info.rows + info.tombstones) / Bucket::kFeasigns + 1;
  merged->region_ = Region::Allocate(buckets_at + most_buckets * sizeof(Bucket));
  uint8_t* rows = merged->region_.data();
  auto* buckets = reinterpret_cast<Bucket*>(merged->region_.data() + buckets_at);
  Packer packer(info.homes, [&buckets](const Bucket& bucket) { *buckets++ = bucket; });
  Walk(newer.image(), older.image(), [&](const Entry& e) {
    packer.Add(e.place, e.feasign, e.row == nullptr);
    if (e.row == nullptr) return;
    std::memcpy(rows, e.row, info.row_bytes);
    rows += info.row_bytes;
  });
  info.buckets = packer.Finish();
  merged->region_.Shrink(buckets_at + info.buckets * sizeof(Bucket));
  merged->image_ = ImageOf(info, merged->region_.data(), merged->region_.data() + buckets_at);
  return merged;
}

}  // namespace elasticctr::cube
