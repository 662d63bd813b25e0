#include "dense/fields/lanes.h"

#include <algorithm>

#include "dense/kernels/avx512_transpose.h"
#include "util/cpu.h"

namespace elasticctr::dense {
namespace {

#if defined(__x86_64__)
#define LANES_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))

LANES_AVX512 void ToLanesAvx512(const float* rows, size_t stride, size_t width, size_t count, Lanes* to) {
  for (size_t first = 0; first < width; first += kLanes) {
    const size_t columns = std::min(kLanes, width - first);
    const auto mask = static_cast<__mmask16>((1u << columns) - 1);
    __m512i word[kLanes];
#pragma GCC unroll 16
    for (size_t l = 0; l < kLanes; ++l) {
      word[l] = l < count ? _mm512_maskz_loadu_epi32(mask, rows + l * stride + first) : _mm512_setzero_si512();
    }
    Transpose16(word);
    for (size_t c = 0; c < columns; ++c) _mm512_storeu_si512(to + first + c, word[c]);
  }
}

LANES_AVX512 void FromLanesAvx512(const Lanes* from, size_t width, size_t count, float* rows, size_t stride) {
  for (size_t first = 0; first < width; first += kLanes) {
    const size_t columns = std::min(kLanes, width - first);
    const auto mask = static_cast<__mmask16>((1u << columns) - 1);
    __m512i word[kLanes];
#pragma GCC unroll 16
    for (size_t c = 0; c < kLanes; ++c) {
      word[c] = c < columns ? _mm512_loadu_si512(from + first + c) : _mm512_setzero_si512();
    }
    Transpose16(word);
    for (size_t l = 0; l < count; ++l) _mm512_mask_storeu_epi32(rows + l * stride + first, mask, word[l]);
  }
}
#endif

}  // namespace

void ToLanes(const float* rows, size_t stride, size_t width, size_t count, Lanes* to) {
#if defined(__x86_64__)
  if (Cpu().avx512) return ToLanesAvx512(rows, stride, width, count, to);
#endif
  for (size_t c = 0; c < width; ++c) {
    for (size_t l = 0; l < kLanes; ++l) to[c][l] = l < count ? rows[l * stride + c] : 0.0f;
  }
}

void FromLanes(const Lanes* from, size_t width, size_t count, float* rows, size_t stride) {
#if defined(__x86_64__)
  if (Cpu().avx512) return FromLanesAvx512(from, width, count, rows, stride);
#endif
  for (size_t l = 0; l < count; ++l) {
    for (size_t c = 0; c < width; ++c) rows[l * stride + c] = from[c][l];
  }
}

}  // namespace elasticctr::dense
