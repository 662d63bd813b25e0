#include "cube/index/index.h"

#include <cstring>

#include "cube/index/check.h"
#include "util/file.h"
#include "util/status.h"

namespace elasticctr::cube {

std::shared_ptr<const Index> Index::Open(const std::string& path, Residence residence, Check check) {
  const File file = File::OpenForReading(path);
  const uint64_t bytes = file.Size();
  if (bytes < kPageBytes) throw Error(Code::kCorruption, path + ": not a cube file, or cut short; build it again");
  uint8_t page[kPageBytes];
  file.Read(page, kPageBytes, 0);
  const Header header = DecodeHeader(page, bytes, path);

  std::shared_ptr<Index> index(new Index);
  index->path_ = path;
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
  index->image_ = Image::Of(header.info, data + kPageBytes, data + header.buckets_offset);
  if (residence == Residence::kMemory || check == Check::kAll) {
    CheckBlocks(data, header, path);
    CheckBuckets(index->image_, header.info, path);
  }
  index->CheckWhole();
  return index;
}

void Index::FailCut() const {
  throw Error(Code::kCorruption, path_ + ": was cut short while it was mapped; cube files are never written again: " +
                                     "fetch or build it again, then load it");
}

}  // namespace elasticctr::cube
