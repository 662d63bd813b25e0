// Rows, frames and reports of servers for client tests.
#pragma once

#include <cstring>

#include "cube/client/client.h"
#include "cube/client/load.h"
#include "tests/check.h"
#include "util/hash.h"

namespace elasticctr::cube {

namespace wire = net::wire;
inline constexpr uint32_t kDim = 3;
inline constexpr uint32_t kRowBytes = 4 * kDim;
inline constexpr char kTable[] = "m/t";
inline bool IsThere(uint64_t feasign) { return feasign % 5 != 0; }

inline void MakeRow(uint64_t version, uint64_t feasign, float* row) {
  row[0] = static_cast<float>(version);
  row[1] = static_cast<float>(feasign % 100'000);
  row[2] = -row[1];
}

inline std::vector<uint8_t> Frame(wire::Header header, const std::vector<uint8_t>& body) {
  header.body_bytes = static_cast<uint32_t>(body.size());
  std::vector<uint8_t> frame(wire::kHeaderBytes);
  wire::EncodeHeader(frame.data(), header);
  frame.insert(frame.end(), body.begin(), body.end());
  return frame;
}

// Lives are successive versions with the same number; 0: the server does not report identities.
inline constexpr uint64_t kLife = 1000;  // added to the version in rows

inline std::string IdentityOf(uint64_t life) { return life == 0 ? "" : "life " + std::to_string(life); }

inline std::vector<uint8_t> LookupFrame(const wire::Header& request, const uint64_t* keys, size_t count,
                                        uint64_t version, uint64_t life = 0) {
  std::vector<uint8_t> body(wire::LookupBodyBytes(count, kRowBytes));
  EncodeFixed32(body.data(), static_cast<uint32_t>(count));
  EncodeFixed32(body.data() + 4, kRowBytes);
  EncodeFixed64(body.data() + 8, version);
  uint8_t* found = body.data() + wire::kLookupHeadBytes;
  uint8_t* rows = found + wire::FoundBytes(count);
  for (size_t i = 0; i < count; ++i) {
    if (!IsThere(keys[i])) continue;
    found[i / 8] |= static_cast<uint8_t>(1 << (i % 8));
    float row[kDim];
    MakeRow(version + life * kLife, keys[i], row);
    std::memcpy(rows + i * kRowBytes, row, kRowBytes);
  }
  wire::Header header = request;
  header.version = version;
  header.time_ms = wire::TagOf(IdentityOf(life));
  return Frame(header, body);
}

inline std::string Report(uint32_t shard, uint32_t shards, uint64_t active, uint64_t life = 0) {
  std::string versions;
  for (uint64_t version = active > 1 ? active - 1 : 1; version <= active; ++version) {
    versions += std::string(versions.empty() ? "" : ", ") + "{\"version\": " + std::to_string(version) +
                ", \"identity\": \"" + IdentityOf(life) +
                "\", \"state\": \"ready\", \"tables\": [{\"name\": \"t\", \"row_bytes\": 12, \"encoding\": \"fp32\", "
                "\"dim\": 3, \"shard\": " +
                std::to_string(shard) + ", \"shards\": " + std::to_string(shards) + ", \"sharding\": \"buckets\"}]}";
  }
  return "{\"models\": [{\"name\": \"m\", \"active\": " + std::to_string(active) + ", \"versions\": [" + versions +
         "]}]}";
}

}  // namespace elasticctr::cube
