// Bodies of the parameter server's frames (docs/formats/ps-wire.md), for both sides. Views point into the body they
// were read from; nothing here copies rows. Readers check every length and throw Error(kData) for an invalid body.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace elasticctr::ps {

// Incremented when frames change, so that roles of different builds refuse each other.
inline constexpr uint32_t kWireBuild = 4;
inline constexpr int kUnixSendRoom = 4 << 20;  // a few frames of a small batch
inline constexpr uint32_t kMaxBodyBytes = 256u << 20;
inline constexpr size_t kMaxTables = 1024;

enum class Opcode : uint8_t {
  kHello = 1,
  kPing = 2,
  kAttach = 16,
  kPull = 17,
  kPush = 18,
  kCursors = 19,
  kGroup = 20,
  kControl = 21,
  kSetDense = 22,
  kReplicate = 24,
  kInsert = 25,
};

// Details beyond net::wire::Detail.
enum class Detail : uint16_t {
  kWrongShard = 3,
  kOverloaded = 4,
  kDeadline = 6,
  kMalformed = 7,
  kOtherJob = 8,
  kCursor = 9,  // the answer's header.version holds the cursor
  kNotPrimary = 10,
  kOldIncarnation = 11,
  kGroupLate = 12,
  kOldEra = 13,  // the answer's header.version holds the pserver's era
};

enum class Encoding : uint8_t { kFp32 = 0, kFp16 = 1, kInt8 = 2, kBf16 = 3 };

// Bytes of one row of `dim` weights or gradients.
size_t EncodedBytes(Encoding encoding, size_t dim);
// Converts `count` rows of `dim` floats to and from bytes. All encodings round to nearest; values too large for fp16
// become its largest; int8 has one scale per row. NaN and infinity survive every encoding as NaN, so that a receiver
// can refuse them.
void EncodeRows(Encoding encoding, const float* rows, size_t count, size_t dim, uint8_t* out);
void DecodeRows(Encoding encoding, const uint8_t* bytes, size_t count, size_t dim, float* out);
// No value is NaN, infinite or above 1e18, whose square would be infinite in an optimizer's state.
bool AreFinite(Encoding encoding, const uint8_t* bytes, size_t count, size_t dim);

// What a reader must know about each table, by number.
struct TableShape {
  uint32_t dim = 0;                 // weights of a row
  bool counts_occurrences = false;  // admission by count or probability: pulls that insert carry occurrences
};

inline constexpr uint8_t kPullInserts = 1, kPullDense = 2;

struct PullTable {
  uint32_t number = 0;
  uint32_t count = 0;
  const uint64_t* feasigns = nullptr;     // may be unaligned in a body: read by memcpy (DecodeFixed64)
  const uint32_t* occurrences = nullptr;  // null: 1 each
};

struct PullRequest {
  uint8_t flags = 0;
  Encoding encoding = Encoding::kFp32;
  uint64_t dense_version = 0;
  std::vector<PullTable> tables;  // by ascending number
  uint64_t era = 0;               // from the header, not the body
};

enum class PushKind : uint8_t { kGradients = 0, kDeltas = 1, kNothing = 2, kEmpty = 3 };
enum class GroupMode : uint8_t { kNone = 0, kAll = 1, kDense = 2 };
inline constexpr uint8_t kPushWantsDense = 1, kPushMasks = 2;

struct PushTable {
  uint32_t number = 0;
  uint32_t count = 0;
  const uint64_t* feasigns = nullptr;
  const float* shows = nullptr;
  const float* clicks = nullptr;
  const uint64_t* masks = nullptr;     // null: every segment has a gradient
  const uint8_t* gradients = nullptr;  // encoded, count rows
  // Not part of the frame: where the pserver last found these rows (RowGradients); null: unknown.
  const uint32_t* rows = nullptr;
  uint64_t generation = 0;
};

struct PushRequest {
  uint64_t trainer = 0;
  uint64_t chunk = 0;
  uint32_t from = 0;
  uint32_t to = 0;
  uint32_t weight = 0;
  uint32_t now = 0;
  float rate_scale = 1.0f;
  PushKind kind = PushKind::kGradients;
  GroupMode group = GroupMode::kNone;
  Encoding encoding = Encoding::kFp32;
  Encoding dense_encoding = Encoding::kFp32;  // not kInt8
  uint8_t flags = 0;
  std::vector<PushTable> tables;  // by ascending number
  uint32_t dense_floats = 0;
  const uint8_t* dense = nullptr;  // one row of all the floats in dense_encoding
  std::span<const uint8_t> body;   // the body it was read from
  uint64_t era = 0;                // from the header, not the body
};

enum class PushOutcome : uint8_t { kApplied = 0, kBefore = 1, kNotFinite = 2 };

PullRequest ReadPull(std::span<const uint8_t> body, std::span<const TableShape> shapes);
PushRequest ReadPush(std::span<const uint8_t> body, std::span<const TableShape> shapes);

// Sizes and writers for the sender. Write* fills exactly as many bytes as the size function returns.
size_t PullBytes(const PullRequest& request, std::span<const TableShape> shapes);
void WritePull(const PullRequest& request, std::span<const TableShape> shapes, uint8_t* out);
size_t PushBytes(const PushRequest& request, std::span<const TableShape> shapes);
void WritePush(const PushRequest& request, std::span<const TableShape> shapes, uint8_t* out);

inline constexpr size_t kPullHead = 16;  // before the tables' numbers and counts
inline constexpr size_t kPushHead = 48;
inline constexpr size_t kPullAnswerHead = 24;  // step, dense version, dense floats, zero
inline constexpr size_t kPushAnswerHead = 32;  // outcome, then as in a pull's answer

// The buckets and the dense floats of pserver `shard` of `shards`. Dense parts start at multiples of 16 floats.
struct Share {
  uint32_t first_bucket, last_bucket;  // [first, last)
  uint64_t first_float, last_float;
};
Share ShareOf(uint32_t shard, uint32_t shards, uint64_t dense_floats, bool dense_on_first);

}  // namespace elasticctr::ps
