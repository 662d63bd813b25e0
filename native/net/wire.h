// The frame of docs/formats/wire.md, for both sides of a connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "util/coding.h"
#include "util/hash.h"
#include "util/status.h"

namespace elasticctr::net::wire {

inline constexpr uint8_t kMagic[4] = {0xEC, 0x57, 0x43, 0x01};
inline constexpr size_t kHeaderBytes = 40;
inline constexpr size_t kLookupHeadBytes = 16;  // count, row bytes, active version: before the found bits
inline constexpr uint32_t kMaxBodyBytes = 16u << 20;
inline constexpr uint32_t kMaxKeys = 1'000'000;
// The limit of servers that state no other in hello.
inline constexpr uint32_t kUsualMaxKeys = 16'384;
inline constexpr uint32_t kUsualMaxBodyBytes = 2u << 20;
inline constexpr uint64_t kMaxAnswerBytes = 256ull << 20;
inline constexpr uint32_t kMaxPingBytes = 64;

enum class Opcode : uint8_t { kHello = 1, kPing = 2, kLookup = 3, kDescribe = 4 };

// The kind of error that an answer's status stands for.
enum class Detail : uint16_t {
  kNone = 0,
  kNoTable = 1,
  kNoVersion = 2,
  kWrongShard = 3,
  kOverloaded = 4,
  kNothingActive = 5,
  kDeadline = 6,
  kMalformed = 7,
};

struct Header {
  uint32_t body_bytes = 0;
  uint64_t id = 0;
  uint64_t version = 0;
  uint64_t table = 0;
  uint32_t time_ms = 0;  // of a lookup's answer with status 0: TagOf its version's identity
  uint8_t opcode = 0;
  uint8_t status = 0;
  uint16_t detail = 0;
};

// REQUIRES: kHeaderBytes at `p`.
inline bool HasMagic(const uint8_t* p) { return std::memcmp(p, kMagic, sizeof kMagic) == 0; }

inline Header DecodeHeader(const uint8_t* p) {
  Header h;
  h.body_bytes = DecodeFixed32(p + 4);
  h.id = DecodeFixed64(p + 8);
  h.version = DecodeFixed64(p + 16);
  h.table = DecodeFixed64(p + 24);
  h.time_ms = DecodeFixed32(p + 32);
  h.opcode = p[36];
  h.status = p[37];
  std::memcpy(&h.detail, p + 38, sizeof h.detail);
  return h;
}

inline void EncodeHeader(uint8_t* p, const Header& h) {
  std::memcpy(p, kMagic, sizeof kMagic);
  EncodeFixed32(p + 4, h.body_bytes);
  EncodeFixed64(p + 8, h.id);
  EncodeFixed64(p + 16, h.version);
  EncodeFixed64(p + 24, h.table);
  EncodeFixed32(p + 32, h.time_ms);
  p[36] = h.opcode;
  p[37] = h.status;
  std::memcpy(p + 38, &h.detail, sizeof h.detail);
}

// Distinguishes two versions with the same number in an answer; 0: the server does not know the identity.
inline uint32_t TagOf(const std::string& identity) {
  return identity.empty() ? 0 : static_cast<uint32_t>(Xxh64(identity.data(), identity.size(), 0)) | 1;
}

// Bytes of the found bits of a lookup's answer.
inline size_t FoundBytes(size_t keys) { return (keys + 63) / 64 * 8; }

// Body bytes of a lookup's answer.
inline uint64_t LookupBodyBytes(size_t keys, uint32_t row_bytes) {
  return kLookupHeadBytes + FoundBytes(keys) + static_cast<uint64_t>(keys) * row_bytes;
}

}  // namespace elasticctr::net::wire
