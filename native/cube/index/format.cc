#include "cube/index/format.h"

#include <cstring>

#include "util/coding.h"
#include "util/crc32c.h"
#include "util/status.h"

namespace elasticctr::cube {
namespace {

constexpr char kMagic[8] = {'E', 'C', 'T', 'R', 'C', 'U', 'B', 'E'};
constexpr uint32_t kFormat = 1;
constexpr size_t kCrcAt = 12;
constexpr size_t kNameAt = 118;

// The reason why an info is invalid, or an empty string.
std::string Fault(const IndexInfo& info) {
  if (info.name.empty() || info.name.size() > kMaxNameBytes) return "a table's name has 1 to 255 bytes";
  if (info.kind > Kind::kDelta) return "unknown kind " + std::to_string(static_cast<int>(info.kind));
  if (info.encoding > Encoding::kInt8) return "unknown encoding " + std::to_string(static_cast<int>(info.encoding));
  if (info.sharding > Sharding::kModulo) return "unknown sharding " + std::to_string(static_cast<int>(info.sharding));
  if (info.row_bytes == 0 || info.row_bytes > kMaxRowBytes) {
    return "a row has 1 to 65,536 bytes, not " + std::to_string(info.row_bytes);
  }
  if (info.encoding == Encoding::kRaw
          ? info.dim != 0
          : info.dim == 0 || info.dim > kMaxRowBytes || info.row_bytes != RowBytes(info.encoding, info.dim)) {
    return std::string(EncodingName(info.encoding)) + " rows of " + std::to_string(info.dim) + " floats do not have " +
           std::to_string(info.row_bytes) + " bytes";
  }
  if (info.shards == 0 || info.shards > kMaxShards || info.shard >= info.shards) {
    return "there is no shard " + std::to_string(info.shard) + " of " + std::to_string(info.shards);
  }
  if (info.version == 0) return "versions start at 1";
  if (info.kind == Kind::kBase && (info.parent != 0 || info.tombstones != 0)) {
    return "a base has no parent and no tombstones";
  }
  if (info.kind == Kind::kDelta && (info.parent == 0 || info.parent >= info.version)) {
    return "a delta stands on an earlier version, not on " + std::to_string(info.parent);
  }
  return "";
}

bool IsLaidOut(const Header& header) {
  const IndexInfo& info = header.info;
  if (info.rows > kMaxEntries || info.tombstones > kMaxEntries || info.buckets > kMaxEntries) return false;
  if (info.homes == 0 || info.buckets < info.homes) return false;
  if (info.rows + info.tombstones > info.buckets * Bucket::kFeasigns) return false;
  const uint64_t buckets_offset = RoundUp(kPageBytes + info.rows * info.row_bytes, kPageBytes);
  const uint64_t checksums_offset = RoundUp(buckets_offset + info.buckets * sizeof(Bucket), kPageBytes);
  const uint64_t blocks = BlocksOf(buckets_offset - kPageBytes) + BlocksOf(checksums_offset - buckets_offset);
  return header.buckets_offset == buckets_offset && header.checksums_offset == checksums_offset &&
         info.file_bytes == checksums_offset + blocks * sizeof(uint32_t);
}

}  // namespace

uint32_t RowBytes(Encoding encoding, uint32_t dim) {
  switch (encoding) {
    case Encoding::kFloat32: return dim * 4;
    case Encoding::kFloat16: return dim * 2;
    case Encoding::kInt8: return dim + 4;
    case Encoding::kRaw: break;
  }
  throw Error(Code::kInternal, "raw rows have no floats");
}

const char* EncodingName(Encoding encoding) {
  constexpr const char* kNames[] = {"raw", "fp32", "fp16", "int8"};
  return kNames[static_cast<size_t>(encoding)];
}

Encoding EncodingOf(const std::string& name) {
  for (const Encoding e : {Encoding::kRaw, Encoding::kFloat32, Encoding::kFloat16, Encoding::kInt8}) {
    if (name == EncodingName(e)) return e;
  }
  throw Error(Code::kConfig, "unknown encoding '" + name + "'; rows are raw, fp32, fp16 or int8");
}

void CheckInfo(const IndexInfo& info) {
  const std::string fault = Fault(info);
  if (!fault.empty()) throw Error(Code::kConfig, "cube file of '" + info.name + "': " + fault);
}

void EncodeHeader(Header* header, uint8_t* page) {
  const IndexInfo& info = header->info;
  std::memset(page, 0, kPageBytes);
  std::memcpy(page, kMagic, sizeof kMagic);
  EncodeFixed32(page + 8, kFormat);
  EncodeFixed64(page + 16, info.file_bytes);
  page[24] = static_cast<uint8_t>(info.kind);
  page[25] = static_cast<uint8_t>(info.encoding);
  page[26] = static_cast<uint8_t>(info.sharding);
  EncodeFixed32(page + 28, info.dim);
  EncodeFixed32(page + 32, info.row_bytes);
  EncodeFixed32(page + 36, info.shard);
  EncodeFixed32(page + 40, info.shards);
  EncodeFixed32(page + 44, kBlockBytes);
  EncodeFixed64(page + 48, info.version);
  EncodeFixed64(page + 56, info.parent);
  EncodeFixed64(page + 64, info.rows);
  EncodeFixed64(page + 72, info.tombstones);
  EncodeFixed64(page + 80, info.homes);
  EncodeFixed64(page + 88, info.buckets);
  EncodeFixed64(page + 96, header->buckets_offset);
  EncodeFixed64(page + 104, header->checksums_offset);
  EncodeFixed32(page + 112, header->checksums_crc);
  page[116] = static_cast<uint8_t>(info.name.size());
  std::memcpy(page + kNameAt, info.name.data(), info.name.size());
  header->crc = Crc32c(0, page, kPageBytes);
  EncodeFixed32(page + kCrcAt, header->crc);
}

Header DecodeHeader(const uint8_t* page, uint64_t file_bytes, const std::string& path) {
  const auto fail = [&](const std::string& why) { throw Error(Code::kCorruption, path + ": " + why); };
  if (std::memcmp(page, kMagic, sizeof kMagic) != 0) fail("not a cube file");
  uint8_t copy[kPageBytes];
  std::memcpy(copy, page, kPageBytes);
  EncodeFixed32(copy + kCrcAt, 0);
  Header header;
  header.crc = DecodeFixed32(page + kCrcAt);
  if (Crc32c(0, copy, kPageBytes) != header.crc)
    fail("the header does not match its checksum; fetch or build it again");
  if (DecodeFixed32(page + 8) != kFormat) {
    fail("cube file format " + std::to_string(DecodeFixed32(page + 8)) + " is not known here, only 1; build it again");
  }
  IndexInfo& info = header.info;
  info.file_bytes = DecodeFixed64(page + 16);
  info.kind = static_cast<Kind>(page[24]);
  info.encoding = static_cast<Encoding>(page[25]);
  info.sharding = static_cast<Sharding>(page[26]);
  info.dim = DecodeFixed32(page + 28);
  info.row_bytes = DecodeFixed32(page + 32);
  info.shard = DecodeFixed32(page + 36);
  info.shards = DecodeFixed32(page + 40);
  info.version = DecodeFixed64(page + 48);
  info.parent = DecodeFixed64(page + 56);
  info.rows = DecodeFixed64(page + 64);
  info.tombstones = DecodeFixed64(page + 72);
  info.homes = DecodeFixed64(page + 80);
  info.buckets = DecodeFixed64(page + 88);
  header.buckets_offset = DecodeFixed64(page + 96);
  header.checksums_offset = DecodeFixed64(page + 104);
  header.checksums_crc = DecodeFixed32(page + 112);
  info.name.assign(reinterpret_cast<const char*>(page + kNameAt), page[116]);
  if (page[117] != 0 || DecodeFixed32(page + 44) != kBlockBytes) fail("the header contradicts itself");
  if (const std::string fault = Fault(info); !fault.empty()) fail("the header contradicts itself: " + fault);
  if (!IsLaidOut(header)) fail("the header contradicts itself: its sections do not fit together");
  if (info.file_bytes != file_bytes) {
    fail("has " + std::to_string(file_bytes) + " bytes instead of " + std::to_string(info.file_bytes) +
         "; it was cut short or added to");
  }
  return header;
}

}  // namespace elasticctr::cube
