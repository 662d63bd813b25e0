// Little-endian integers as they are stored on disk and sent over the wire.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace elasticctr {

static_assert(std::endian::native == std::endian::little, "ElasticCTR runs on little-endian machines");

inline uint32_t DecodeFixed32(const void* p) {
  uint32_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline uint64_t DecodeFixed64(const void* p) {
  uint64_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void EncodeFixed32(void* p, uint32_t v) { std::memcpy(p, &v, sizeof v); }
inline void EncodeFixed64(void* p, uint64_t v) { std::memcpy(p, &v, sizeof v); }

}  // namespace elasticctr
