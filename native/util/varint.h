// Protobuf's variable-length integers: seven bits per byte, lowest first.
#pragma once

#include <cstddef>
#include <cstdint>

namespace elasticctr {

inline constexpr size_t kMaxVarintBytes = 10;

// Writes at most kMaxVarintBytes; returns where they end.
inline char* PutVarint(char* p, uint64_t value) {
  for (; value >= 0x80; value >>= 7) *p++ = static_cast<char>(value | 0x80);
  *p++ = static_cast<char>(value);
  return p;
}

enum class VarintEnd : uint8_t { kGood, kCut, kTooLarge };

// Reads a number and moves `at` past it. Any result but kGood changes neither `at` nor `value`.
inline VarintEnd TakeVarint(const char** at, const char* end, uint64_t* value) {
  uint64_t taken = 0;
  const char* p = *at;
  for (int shift = 0; shift < 64; shift += 7) {
    if (p == end) return VarintEnd::kCut;
    const auto byte = static_cast<uint8_t>(*p++);
    if (shift == 63 && byte > 1) return VarintEnd::kTooLarge;
    taken |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) {
      *at = p;
      *value = taken;
      return VarintEnd::kGood;
    }
  }
  return VarintEnd::kTooLarge;
}

}  // namespace elasticctr
