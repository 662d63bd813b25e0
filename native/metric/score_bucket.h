// The fixed buckets that logits fall into: 8192 for every power of two of |logit| from 2^-20 to 2^8, for each
// sign, in rising order. Two logits share a bucket when they differ by less than 1/8192 of themselves; all
// below 2^-20 in size share two, as do all past ±256. The same buckets everywhere make histograms mergeable.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "util/target.h"

namespace elasticctr::metric {

inline constexpr int32_t kMantissaBits = 13;
inline constexpr int32_t kMinExponent = -20;
inline constexpr int32_t kMaxExponent = 8;
inline constexpr int32_t kBucketsPerSign = (kMaxExponent - kMinExponent) << kMantissaBits;
inline constexpr int32_t kScoreBuckets = 2 * kBucketsPerSign;

// REQUIRES: logit is not NaN. -0 falls with +0.
ELASTICCTR_INLINE int32_t BucketOfLogit(float logit) {
  const int32_t bits = std::bit_cast<int32_t>(logit + 0.0f);
  constexpr int32_t kFirst = (127 + kMinExponent) << kMantissaBits;
  int32_t magnitude = ((bits & 0x7fffffff) >> (23 - kMantissaBits)) - kFirst;
  magnitude = magnitude < 0 ? 0 : magnitude;
  magnitude = magnitude >= kBucketsPerSign ? kBucketsPerSign - 1 : magnitude;
  return bits < 0 ? kBucketsPerSign - 1 - magnitude : kBucketsPerSign + magnitude;
}

// The logit in the middle of a bucket.
inline double LogitOfBucket(int32_t bucket) {
  const bool is_negative = bucket < kBucketsPerSign;
  const int32_t magnitude = is_negative ? kBucketsPerSign - 1 - bucket : bucket - kBucketsPerSign;
  const double mantissa = (magnitude & ((1 << kMantissaBits) - 1)) + 0.5;
  const double size =
      magnitude == 0 ? 0.0
                     : std::ldexp(1.0 + mantissa / (1 << kMantissaBits), kMinExponent + (magnitude >> kMantissaBits));
  return is_negative ? -size : size;
}

// A float's bits so that integer order is numeric order; -0 and +0 are the same. REQUIRES: not NaN.
inline uint32_t OrderedBits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

}  // namespace elasticctr::metric
