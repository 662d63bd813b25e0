#include "cube/index/check.h"

#include "util/coding.h"
#include "util/crc32c.h"
#include "util/status.h"

namespace elasticctr::cube {
namespace {

[[noreturn]] void Fail(const std::string& path, const std::string& why) {
  throw Error(Code::kCorruption, path + ": " + why + "; fetch or build it again");
}

[[noreturn]] void FailBucket(const std::string& path, uint64_t bucket, const char* why) {
  Fail(path, "bucket " + std::to_string(bucket) + " " + why);
}

}  // namespace

void CheckBlocks(const uint8_t* file, const Header& header, const std::string& path) {
  const uint8_t* checksums = file + header.checksums_offset;
  if (Crc32c(0, checksums, header.info.file_bytes - header.checksums_offset) != header.checksums_crc) {
    Fail(path, "the block checksums do not match theirs");
  }
  const auto check = [&](const char* section, uint64_t from, uint64_t to) {
    for (uint64_t offset = from; offset < to; offset += kBlockBytes, checksums += sizeof(uint32_t)) {
      const size_t size = std::min<uint64_t>(kBlockBytes, to - offset);
      if (Crc32c(0, file + offset, size) != DecodeFixed32(checksums)) {
        Fail(path, std::string(section) + " at bytes " + std::to_string(offset) + " to " +
                       std::to_string(offset + size) + " do not match their checksum");
      }
    }
  };
  check("rows", kPageBytes, header.buckets_offset);
  check("buckets", header.buckets_offset, header.checksums_offset);
}

void CheckBuckets(const Image& image, const IndexInfo& info, const std::string& path) {
  uint64_t rows = 0, tombstones = 0, last_place = 0, last_feasign = 0;
  bool is_first = true, was_spilled = false;
  for (uint64_t b = 0; b < image.bucket_count; ++b) {
    const Bucket& bucket = image.buckets[b];
    if (bucket.count > Bucket::kFeasigns) FailBucket(path, b, "says it has more than 7 feasigns");
    if (bucket.dead >> bucket.count != 0) FailBucket(path, b, "has a tombstone without a feasign");
    if (bucket.first_row() != rows) FailBucket(path, b, "does not number its rows after those before it");
    if (bucket.spilled > 1) FailBucket(path, b, "has an unknown mark");
    if (bucket.spilled == 1 && bucket.count < Bucket::kFeasigns) FailBucket(path, b, "spills without being full");
    for (unsigned i = 0; i < Bucket::kFeasigns; ++i) {
      const uint64_t feasign = bucket.feasigns[i];
      if (i >= bucket.count) {
        if (feasign != 0) FailBucket(path, b, "has bytes where no feasign is");
        continue;
      }
      const uint64_t place = PlaceOf(feasign), home = HomeOf(place, image.homes);
      if (!is_first && (place != last_place ? place < last_place : feasign <= last_feasign)) {
        FailBucket(path, b, "is out of order");
      }
      if (home > b || (home < b && i == 0 && !was_spilled)) FailBucket(path, b, "has a feasign of another home");
      if (i == 0 && was_spilled && home == b) FailBucket(path, b, "continues a bucket that needs none");
      if (OwnerOf(feasign, info.sharding, info.shards) != info.shard) {
        FailBucket(path, b, "has a feasign of another shard");
      }
      last_place = place;
      last_feasign = feasign;
      is_first = false;
    }
    if (was_spilled && bucket.count == 0) FailBucket(path, b, "continues a bucket and is empty");
    const auto dead = static_cast<uint64_t>(std::popcount(bucket.dead));
    rows += bucket.count - dead;
    tombstones += dead;
    was_spilled = bucket.spilled == 1;
  }
  if (was_spilled) Fail(path, "the last bucket spills");
  if (rows != info.rows || tombstones != info.tombstones) Fail(path, "has other rows than its header says");
}

}  // namespace elasticctr::cube
