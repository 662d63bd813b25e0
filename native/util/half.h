// IEEE half precision, without branches so that loops over it are vectorized.
#pragma once

#include <bit>
#include <cstdint>

#include "util/target.h"

namespace elasticctr {

inline constexpr uint32_t kFloatInfinityBits = 0x7F800000u;

// Rounds to nearest even; 65520 and above become infinity.
ELASTICCTR_INLINE uint16_t HalfOf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
  // Normal: re-bias the exponent and round away the lowest 13 bits.
  const uint32_t normal = (magnitude - 0x38000000u + 0xFFFu + (magnitude >> 13 & 1u)) >> 13;
  // Subnormal: adding 0.5 leaves the value, in units of 2^-24 and rounded by the hardware, in the low bits.
  const uint32_t small =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - std::bit_cast<uint32_t>(0.5f);
  uint32_t half = magnitude < 0x38800000u ? small : normal;
  half = magnitude >= 0x477FF000u ? 0x7C00u : half;
  half = magnitude > kFloatInfinityBits ? 0x7E00u : half;  // not a number
  return static_cast<uint16_t>(half | sign);
}

ELASTICCTR_INLINE float FloatOf(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16, magnitude = half & 0x7FFFu;
  const uint32_t normal = (magnitude << 13) + 0x38000000u;
  const float small = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f;
  uint32_t bits = magnitude < 0x400u ? std::bit_cast<uint32_t>(small) : normal;
  bits = magnitude >= 0x7C00u ? kFloatInfinityBits | magnitude << 13 : bits;
  return std::bit_cast<float>(bits | sign);
}

// Rounds |x| <= 2^22 to the nearest integer, ties to even: the sum has no bits left for the fraction.
ELASTICCTR_INLINE float Nearest(float x) { return (x + 12582912.0f) - 12582912.0f; }

}  // namespace elasticctr
