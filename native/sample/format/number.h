// Parses decimal numbers, eight bytes at a time.
//
// Every reader here may read up to kLookahead bytes from `p` on: the caller makes sure that they are readable and that
// the text ends with a byte that is not part of a number.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>

#include "util/coding.h"
#include "util/target.h"

namespace elasticctr {

inline constexpr size_t kLookahead = 64;

inline constexpr uint64_t kPow10[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
inline constexpr double kPow10Double[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7};

// The leading digits of eight bytes: how many there are and their value.
struct Digits {
  unsigned count;
  uint64_t value;
};

inline constexpr uint64_t kZeros = 0x3030303030303030ULL;  // eight characters; XOR with it maps a digit to 0 to 9

// Bit 7 of every byte over 9, up to the lowest of them; higher bits are meaningless.
ELASTICCTR_INLINE uint64_t FindOthers(uint64_t x) { return ((x + 0x7676767676767676ULL) | x) & 0x8080808080808080ULL; }

// The number whose eight decimal digits are the bytes of `x`, each 0 to 9, the lowest byte first.
ELASTICCTR_INLINE uint64_t ValueOfDigits(uint64_t x) {
  x = x * 10 + (x >> 8);
  x = ((x & 0x000000FF000000FFULL) * 0x000F424000000064ULL +
       ((x >> 16) & 0x000000FF000000FFULL) * 0x0000271000000001ULL) >>
      32;
  return x & 0xFFFFFFFFULL;
}

ELASTICCTR_INLINE Digits LeadingDigits(uint64_t bytes) {
  const uint64_t x = bytes ^ kZeros;
  const uint64_t others = FindOthers(x);
  const unsigned count = others == 0 ? 8 : static_cast<unsigned>(__builtin_ctzll(others)) >> 3;
  if (count == 0) return {0, 0};
  return {count, ValueOfDigits(x << (64 - 8 * count))};  // as if preceded by zeros
}

// Reads an unsigned 64-bit integer. Returns the byte after it, or nullptr if there is none or it is over 2^64 - 1.
ELASTICCTR_INLINE const char* ReadU64(const char* p, uint64_t* out) {
  const Digits first = LeadingDigits(DecodeFixed64(p));
  if (first.count < 8) [[likely]] {
    *out = first.value;
    return first.count == 0 ? nullptr : p + first.count;
  }
  uint64_t value = first.value;
  const Digits second = LeadingDigits(DecodeFixed64(p + 8));
  value = value * kPow10[second.count] + second.value;
  if (second.count < 8) {
    *out = value;
    return p + 8 + second.count;
  }
  const Digits third = LeadingDigits(DecodeFixed64(p + 16));
  if (third.count < 8) [[likely]] {
    const bool is_over = __builtin_mul_overflow(value, kPow10[third.count], &value) ||
                         __builtin_add_overflow(value, third.value, &value);
    *out = value;
    return is_over ? nullptr : p + 16 + third.count;
  }
  for (p += 16; *p >= '0' && *p <= '9'; ++p) {
    if (__builtin_mul_overflow(value, uint64_t{10}, &value) ||
        __builtin_add_overflow(value, static_cast<uint64_t>(*p - '0'), &value)) {
      return nullptr;
    }
  }
  *out = value;
  return p;
}

// The general case of ReadDouble, exact for any number of digits. Returns nullptr if [p, end) does not start with a
// decimal number. A number that is too large gives an infinity.
const char* ReadDoubleSlowly(const char* p, const char* end, double* out);

// Reads the nearest double of a decimal number such as -1.5e-3. Returns the byte after it, or nullptr.
// `end` is the end of the text; nan and inf are not numbers.
ELASTICCTR_INLINE const char* ReadDouble(const char* p, const char* end, double* out) {
  const char* q = p;
  const bool negative = *q == '-';
  q += negative;
  const Digits whole = LeadingDigits(DecodeFixed64(q));
  q += whole.count;
  uint64_t digits = whole.value;
  unsigned decimals = 0;
  if (*q == '.') {
    const Digits part = LeadingDigits(DecodeFixed64(++q));
    q += part.count;
    decimals = part.count;
    digits = digits * kPow10[decimals] + part.value;
  }
  // With fewer than 8 digits on each side, both operands are exact and the division rounds once.
  const bool is_simple = whole.count > 0 && whole.count < 8 && decimals < 8 && (*q | 0x20) != 'e';
  if (!is_simple) [[unlikely]]
    return ReadDoubleSlowly(p, end, out);
  const double value = static_cast<double>(static_cast<int64_t>(digits)) / kPow10Double[decimals];
  *out = std::bit_cast<double>(std::bit_cast<uint64_t>(value) ^ (uint64_t{negative} << 63));
  return q;
}

// Two readers for text whose end is known, so that parsing a number does not depend on the one before it. They take the
// same branches for numbers of any size up to 8 bytes, and return false if [p, p + size) is not such a number: the
// caller then uses the readers above.

// REQUIRES: size > 0.
ELASTICCTR_INLINE bool ReadShortU64(const char* p, size_t size, uint64_t* out) {
  if (size > 8) return false;
  const uint64_t x = (DecodeFixed64(p) ^ kZeros) << (64 - 8 * size);
  *out = ValueOfDigits(x);
  return FindOthers(x) == 0;
}

// A decimal number without exponent.
ELASTICCTR_INLINE bool ReadShortDouble(const char* p, size_t size, double* out) {
  const bool negative = *p == '-';
  p += negative;
  size -= negative;
  if (size - 1 > 7) return false;
  uint64_t x = (DecodeFixed64(p) ^ kZeros) << (64 - 8 * size);
  const uint64_t others = FindOthers(x);
  // The first byte that is not a digit should be the point: the bytes before it move up into its place. Only some
  // numbers have a point, so the code does not branch on it.
  const uint64_t has_point = (others | (0 - others)) >> 63;
  const uint64_t lowest = (others & (0 - others)) >> 7;
  const uint64_t before = lowest - 1;
  const uint64_t point = 0xFF * lowest;
  const bool is_point = ((x ^ (('.' ^ '0') * lowest)) & point) == 0;
  x = ((x & before) << (8 * has_point)) | (x & ~(before | point));
  const unsigned decimals = 7 - (static_cast<unsigned>(__builtin_ctzll(lowest | ((1 - has_point) << 56))) >> 3);
  const double value = static_cast<double>(static_cast<int64_t>(ValueOfDigits(x))) / kPow10Double[decimals];
  *out = std::bit_cast<double>(std::bit_cast<uint64_t>(value) ^ (uint64_t{negative} << 63));
  return is_point && FindOthers(x) == 0 && *p != '.';
}

}  // namespace elasticctr
