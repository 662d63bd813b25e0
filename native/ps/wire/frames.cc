#include "ps/wire/frames.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "util/coding.h"
#include "util/hash.h"
#include "util/status.h"

namespace elasticctr::ps {
namespace {

constexpr size_t kTableHeadBytes = 8;
constexpr uint32_t kMaxNow = 1u << 31;
constexpr uint64_t kDenseAlignment = 16;

[[noreturn]] void Malformed(const std::string& what) { throw Error(Code::kData, "a malformed body: " + what); }

// Reads a body from its front; checks every length before using it.
class Taker {
 public:
  explicit Taker(std::span<const uint8_t> body) : at_(body.data()), left_(body.size()) {}

  const uint8_t* Bytes(uint64_t size) {
    if (size > left_) Malformed("it ends too early");
    const uint8_t* taken = at_;
    at_ += size;
    left_ -= size;
    return taken;
  }
  uint8_t U8() { return *Bytes(1); }
  uint16_t U16() {
    uint16_t value;
    std::memcpy(&value, Bytes(sizeof value), sizeof value);
    return value;
  }
  uint32_t U32() { return DecodeFixed32(Bytes(4)); }
  uint64_t U64() { return DecodeFixed64(Bytes(8)); }
  float F32() {
    float value;
    std::memcpy(&value, Bytes(sizeof value), sizeof value);
    return value;
  }
  template <typename T>
  const T* Array(uint64_t count) {
    return reinterpret_cast<const T*>(Bytes(count * sizeof(T)));
  }
  void End() const {
    if (left_ != 0) Malformed(std::to_string(left_) + " bytes too many");
  }

 private:
  const uint8_t* at_;
  size_t left_;
};

// The inverse. The caller guarantees the room.
class Putter {
 public:
  explicit Putter(uint8_t* out) : at_(out) {}

  void Bytes(const void* from, size_t size) {
    if (size != 0) std::memcpy(at_, from, size);
    at_ += size;
  }
  template <typename T>
  void Value(T value) {
    Bytes(&value, sizeof value);
  }

 private:
  uint8_t* at_;
};

Encoding CheckEncoding(uint8_t value) {
  if (value > static_cast<uint8_t>(Encoding::kBf16)) Malformed("an unknown encoding");
  return static_cast<Encoding>(value);
}

// Number and count of each table, in ascending order of numbers.
template <typename T>
std::vector<T> ReadTableHeads(Taker* taker, size_t count, std::span<const TableShape> shapes) {
  if (count > std::min(shapes.size(), kMaxTables)) Malformed("more tables than there are");
  std::vector<T> tables(count);
  for (size_t i = 0; i < count; ++i) {
    tables[i].number = taker->U32();
    tables[i].count = taker->U32();
    if (tables[i].number >= shapes.size()) Malformed("a table that is not there");
    if (i != 0 && tables[i].number <= tables[i - 1].number) Malformed("tables out of order");
  }
  return tables;
}

bool HasOccurrences(uint8_t flags, const TableShape& shape) {
  return (flags & kPullInserts) != 0 && shape.counts_occurrences;
}

void CheckPushHead(const PushRequest& push) {
  if (push.now >= kMaxNow) Malformed("a time of 2^31 or more");
  if (!std::isfinite(push.rate_scale) || push.rate_scale < 0.0f) Malformed("a rate scale that cannot be");
  if ((push.flags & ~(kPushWantsDense | kPushMasks)) != 0) Malformed("unknown flags");
  const bool is_empty = push.kind == PushKind::kEmpty;
  if (is_empty ? push.from != push.to : push.from >= push.to) Malformed("batches that cannot be");
  if (push.kind == PushKind::kDeltas && push.group != GroupMode::kNone) Malformed("deltas do not wait for a group");
  if (is_empty && push.weight != 0) Malformed("an empty push with a weight");
}

}  // namespace

PullRequest ReadPull(std::span<const uint8_t> body, std::span<const TableShape> shapes) {
  Taker taker(body);
  PullRequest pull;
  pull.flags = taker.U8();
  pull.encoding = CheckEncoding(taker.U8());
  const size_t tables = taker.U16();
  if (taker.U32() != 0 || (pull.flags & ~(kPullInserts | kPullDense)) != 0) Malformed("unknown flags");
  pull.dense_version = taker.U64();
  pull.tables = ReadTableHeads<PullTable>(&taker, tables, shapes);
  for (PullTable& table : pull.tables) {
    table.feasigns = taker.Array<uint64_t>(table.count);
    if (HasOccurrences(pull.flags, shapes[table.number])) table.occurrences = taker.Array<uint32_t>(table.count);
  }
  taker.End();
  return pull;
}

size_t PullBytes(const PullRequest& pull, std::span<const TableShape> shapes) {
  size_t bytes = kPullHead;
  for (const PullTable& table : pull.tables) {
    bytes += kTableHeadBytes + table.count * sizeof(uint64_t);
    if (HasOccurrences(pull.flags, shapes[table.number])) bytes += table.count * sizeof(uint32_t);
  }
  return bytes;
}

void WritePull(const PullRequest& pull, std::span<const TableShape> shapes, uint8_t* out) {
  Putter putter(out);
  putter.Value(pull.flags);
  putter.Value(pull.encoding);
  putter.Value(static_cast<uint16_t>(pull.tables.size()));
  putter.Value(uint32_t{0});
  putter.Value(pull.dense_version);
  for (const PullTable& table : pull.tables) {
    putter.Value(table.number);
    putter.Value(table.count);
  }
  for (const PullTable& table : pull.tables) {
    putter.Bytes(table.feasigns, table.count * sizeof(uint64_t));
    if (!HasOccurrences(pull.flags, shapes[table.number])) continue;
    if (table.occurrences != nullptr) {
      putter.Bytes(table.occurrences, table.count * sizeof(uint32_t));
    } else {
      for (uint32_t i = 0; i < table.count; ++i) putter.Value(uint32_t{1});
    }
  }
}

PushRequest ReadPush(std::span<const uint8_t> body, std::span<const TableShape> shapes) {
  Taker taker(body);
  PushRequest push;
  push.body = body;
  push.trainer = taker.U64();
  push.chunk = taker.U64();
  push.from = taker.U32();
  push.to = taker.U32();
  push.weight = taker.U32();
  push.now = taker.U32();
  push.rate_scale = taker.F32();
  const uint8_t kind = taker.U8(), group = taker.U8();
  if (kind > static_cast<uint8_t>(PushKind::kEmpty)) Malformed("an unknown kind of push");
  if (group > static_cast<uint8_t>(GroupMode::kDense)) Malformed("an unknown way to wait");
  push.kind = static_cast<PushKind>(kind);
  push.group = static_cast<GroupMode>(group);
  push.encoding = CheckEncoding(taker.U8());
  push.flags = taker.U8();
  const size_t tables = taker.U16();
  push.dense_encoding = CheckEncoding(taker.U8());
  if (push.dense_encoding == Encoding::kInt8) Malformed("dense gradients as int8");
  if (taker.U8() != 0) Malformed("unknown flags");
  push.dense_floats = taker.U32();
  CheckPushHead(push);
  push.tables = ReadTableHeads<PushTable>(&taker, tables, shapes);
  bool has_gradients = push.dense_floats != 0;
  for (PushTable& table : push.tables) {
    has_gradients |= table.count != 0;
    table.feasigns = taker.Array<uint64_t>(table.count);
    table.shows = taker.Array<float>(table.count);
    table.clicks = taker.Array<float>(table.count);
    if ((push.flags & kPushMasks) != 0) table.masks = taker.Array<uint64_t>(table.count);
    table.gradients = taker.Bytes(table.count * EncodedBytes(push.encoding, shapes[table.number].dim));
  }
  push.dense = taker.Bytes(EncodedBytes(push.dense_encoding, push.dense_floats));
  taker.End();
  if (has_gradients && push.kind >= PushKind::kNothing) Malformed("gradients in a push that has none");
  return push;
}

size_t PushBytes(const PushRequest& push, std::span<const TableShape> shapes) {
  size_t bytes = kPushHead + EncodedBytes(push.dense_encoding, push.dense_floats);
  const size_t mask_bytes = (push.flags & kPushMasks) != 0 ? sizeof(uint64_t) : 0;
  for (const PushTable& table : push.tables) {
    const size_t row = EncodedBytes(push.encoding, shapes[table.number].dim);
    bytes += kTableHeadBytes + table.count * (sizeof(uint64_t) + 2 * sizeof(float) + mask_bytes + row);
  }
  return bytes;
}

void WritePush(const PushRequest& push, std::span<const TableShape> shapes, uint8_t* out) {
  Putter putter(out);
  putter.Value(push.trainer);
  putter.Value(push.chunk);
  putter.Value(push.from);
  putter.Value(push.to);
  putter.Value(push.weight);
  putter.Value(push.now);
  putter.Value(push.rate_scale);
  putter.Value(push.kind);
  putter.Value(push.group);
  putter.Value(push.encoding);
  putter.Value(push.flags);
  putter.Value(static_cast<uint16_t>(push.tables.size()));
  putter.Value(push.dense_encoding);
  putter.Value(uint8_t{0});
  putter.Value(push.dense_floats);
  for (const PushTable& table : push.tables) {
    putter.Value(table.number);
    putter.Value(table.count);
  }
  for (const PushTable& table : push.tables) {
    putter.Bytes(table.feasigns, table.count * sizeof(uint64_t));
    putter.Bytes(table.shows, table.count * sizeof(float));
    putter.Bytes(table.clicks, table.count * sizeof(float));
    if ((push.flags & kPushMasks) != 0) putter.Bytes(table.masks, table.count * sizeof(uint64_t));
    putter.Bytes(table.gradients, table.count * EncodedBytes(push.encoding, shapes[table.number].dim));
  }
  putter.Bytes(push.dense, EncodedBytes(push.dense_encoding, push.dense_floats));
}

Share ShareOf(uint32_t shard, uint32_t shards, uint64_t dense_floats, bool dense_on_first) {
  // The smallest bucket whose ShardOf is `shard`.
  const auto first_bucket = [=](uint64_t s) { return static_cast<uint32_t>((s * kBuckets + shards - 1) / shards); };
  const auto first_float = [=](uint64_t s) {
    if (dense_on_first) return s == 0 ? 0 : dense_floats;
    const uint64_t blocks = (dense_floats + kDenseAlignment - 1) / kDenseAlignment;
    return std::min(blocks * s / shards * kDenseAlignment, dense_floats);
  };
  return {first_bucket(shard), first_bucket(shard + 1), first_float(shard), first_float(shard + 1)};
}

}  // namespace elasticctr::ps
