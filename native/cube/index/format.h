// The bytes of a cube file (docs/formats/cube-file.md): its header and its buckets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "util/hash.h"

namespace elasticctr::cube {

enum class Kind : uint8_t { kBase = 0, kDelta = 1 };
enum class Encoding : uint8_t { kRaw = 0, kFloat32 = 1, kFloat16 = 2, kInt8 = 3 };
enum class Sharding : uint8_t { kBuckets = 0, kModulo = 1 };

inline constexpr size_t kPageBytes = 4096;
inline constexpr size_t kBlockBytes = size_t{1} << 20;
inline constexpr uint32_t kMaxRowBytes = 1u << 16;
inline constexpr uint32_t kMaxShards = 4096;
inline constexpr size_t kMaxNameBytes = 255;
inline constexpr uint64_t kMaxEntries = uint64_t{1} << 40;

struct IndexInfo {
  std::string name;  // model/table
  Kind kind = Kind::kBase;
  Encoding encoding = Encoding::kRaw;
  Sharding sharding = Sharding::kBuckets;
  uint32_t dim = 0;
  uint32_t row_bytes = 0;
  uint32_t shard = 0;
  uint32_t shards = 1;
  uint64_t version = 0;
  uint64_t parent = 0;
  uint64_t rows = 0;
  uint64_t tombstones = 0;
  uint64_t homes = 0;
  uint64_t buckets = 0;
  uint64_t file_bytes = 0;
};

// The header's fields besides the info.
struct Header {
  IndexInfo info;
  uint64_t buckets_offset = 0;
  uint64_t checksums_offset = 0;
  uint32_t checksums_crc = 0;
  uint32_t crc = 0;  // of the header itself; files with equal CRCs have equal contents
};

struct alignas(64) Bucket {
  static constexpr unsigned kFeasigns = 7;
  uint64_t feasigns[kFeasigns];
  uint32_t first_row_low;
  uint8_t first_row_high;
  uint8_t count;
  uint8_t dead;
  uint8_t spilled;

  uint64_t first_row() const { return first_row_low | static_cast<uint64_t>(first_row_high) << 32; }
};
static_assert(sizeof(Bucket) == 64);

// The bits of the mixed feasign that do not choose its shard; they choose its bucket.
inline uint64_t PlaceOfMixed(uint64_t mixed) { return mixed << kBucketBits; }
inline uint64_t PlaceOf(uint64_t feasign) { return PlaceOfMixed(Mix64(feasign)); }
inline uint64_t HomeOf(uint64_t place, uint64_t homes) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(place) * homes >> 64);
}
// The number of homes for this many feasigns: 5.75 feasigns each on average, at least one home.
inline uint64_t HomesFor(uint64_t feasigns) { return feasigns == 0 ? 1 : (feasigns * 4 + 22) / 23; }

// REQUIRES: 1 <= shards <= kMaxShards.
inline uint32_t OwnerOf(uint64_t feasign, Sharding sharding, uint32_t shards) {
  return sharding == Sharding::kBuckets ? ShardOf(feasign, shards) : static_cast<uint32_t>(feasign % shards);
}

inline uint64_t RoundUp(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }
inline uint64_t BlocksOf(uint64_t bytes) { return (bytes + kBlockBytes - 1) / kBlockBytes; }

// Bytes of a row of `dim` floats. REQUIRES: encoding is not kRaw.
uint32_t RowBytes(Encoding encoding, uint32_t dim);
const char* EncodingName(Encoding encoding);
// Throws ConfigError for a name other than raw, fp32, fp16 and int8.
Encoding EncodingOf(const std::string& name);
// Throws ConfigError naming the invalid field (a name too long, a shard that is not one of `shards`, …).
void CheckInfo(const IndexInfo& info);

// `page` has kPageBytes. Sets header->crc.
void EncodeHeader(Header* header, uint8_t* page);
// Throws Corruption for a page that is not the header of a cube file of `file_bytes` bytes; `path` names it in
// messages.
Header DecodeHeader(const uint8_t* page, uint64_t file_bytes, const std::string& path);

}  // namespace elasticctr::cube
