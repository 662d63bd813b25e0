// How accumulators write integers into their saved state.
#pragma once

#include <cstdint>
#include <string>

#include "metric/pairs.h"
#include "util/coding.h"

namespace elasticctr::metric {

inline void Append32(std::string* out, uint32_t value) {
  char bytes[4];
  EncodeFixed32(bytes, value);
  out->append(bytes, sizeof bytes);
}

inline void Append64(std::string* out, uint64_t value) {
  char bytes[8];
  EncodeFixed64(bytes, value);
  out->append(bytes, sizeof bytes);
}

inline void Append128(std::string* out, UInt128 value) {
  Append64(out, static_cast<uint64_t>(value));
  Append64(out, static_cast<uint64_t>(value >> 64));
}

inline UInt128 Decode128(const char* p) { return static_cast<UInt128>(DecodeFixed64(p + 8)) << 64 | DecodeFixed64(p); }

}  // namespace elasticctr::metric
