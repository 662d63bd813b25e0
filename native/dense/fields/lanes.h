// Arithmetic on sixteen samples side by side, for layers whose own axes are too short to fill a vector. A Lanes holds
// the same number of sixteen samples.
//
// Kernels that use it are compiled once per instruction set (ELASTICCTR_CLONES), with fused multiply-adds.
#pragma once

#include <cstddef>
#include <cstdint>

#include "util/target.h"

namespace elasticctr::dense {

inline constexpr size_t kLanes = 16;

typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float))));
typedef int32_t IntLanes __attribute__((vector_size(kLanes * sizeof(int32_t))));

// to[c][l] = rows[l * stride + c] for `width` columns and `count` <= kLanes rows; lanes past `count` are zero.
void ToLanes(const float* rows, size_t stride, size_t width, size_t count, Lanes* to);
// The inverse of ToLanes.
void FromLanes(const Lanes* from, size_t width, size_t count, float* rows, size_t stride);

// exp(x) within 3e-7 of its value. REQUIRES: x <= 0. Below -87 the result is exp(-87).
ELASTICCTR_INLINE Lanes ExpOfNegative(Lanes x) {
  const Lanes lowest = Lanes{} - 87.0f;
  x = x < lowest ? lowest : x;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: the sum's last bits are the rounded number
  const Lanes shifted = x * 1.44269504f + kRound;
  const Lanes whole = shifted - kRound;
  const Lanes rest = (x - whole * 0.693145752f) - whole * 1.42860677e-6f;
  Lanes power = rest * (1.0f / 720) + (1.0f / 120);
  power = power * rest + (1.0f / 24);
  power = power * rest + (1.0f / 6);
  power = power * rest + 0.5f;
  power = power * rest + 1.0f;
  power = power * rest + 1.0f;
  return reinterpret_cast<Lanes>(reinterpret_cast<IntLanes>(power) + (reinterpret_cast<IntLanes>(shifted) << 23));
}

// Calls fn(first, Number<n>) for [0, count) in the fewest pieces of at most Most, all of similar length.
template <size_t N>
struct Number {
  static constexpr size_t value = N;
};
template <size_t Most, typename Fn>
ELASTICCTR_INLINE void InPieces(size_t count, Fn&& fn) {
  const size_t pieces = (count + Most - 1) / Most;
  for (size_t piece = 0, first = 0; piece < pieces; ++piece) {
    const size_t size = (count - first) / (pieces - piece);
    switch (size) {
      case 1: fn(first, Number<1>{}); break;
      case 2: fn(first, Number<2>{}); break;
      case 3: fn(first, Number<3>{}); break;
      case 4: fn(first, Number<4>{}); break;
      case 5: fn(first, Number<5>{}); break;
      case 6: fn(first, Number<6>{}); break;
      case 7: fn(first, Number<7>{}); break;
      default: fn(first, Number<8>{});
    }
    first += size;
  }
}

}  // namespace elasticctr::dense
