// Shared by all bf16 kernels: conversion of floats into bf16 panels and packed weights, rounded to nearest even, and
// the end of each product. To be included like panel_kernels.h; DENSE_TARGET has AVX512_BF16.
//
// Pairs: word (i, j) of a panel holds rows 2i (low half) and 2i + 1 (high half) of column j. Packed weights pair two
// depth steps in the same way. A `rows` panel has 32 bf16 per row.
#pragma once

#include "dense/kernels/avx512_transpose.h"
#include "dense/kernels/dropout_kernel.h"
#include "dense/kernels/panel_kernels.h"

namespace elasticctr::dense {
namespace {

constexpr size_t kHalf = 16;
constexpr size_t kRowBytes = kPanel * 2;
constexpr size_t kPairBytes = kPanel * 4;

DENSE_INLINE __m256i Round(__m512 v) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v)); }

DENSE_INLINE __m512i Interleave(__m256i low, __m256i high) {
  return _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
}

DENSE_INLINE __mmask16 MaskOf(size_t columns) {
  return static_cast<__mmask16>(columns >= kHalf ? 0xFFFFu : (1u << columns) - 1);
}

// Zero in both rows where the activation is not positive, * scale elsewhere.
DENSE_INLINE void Gate(const char* activations, __m512 scale, __m512* even, __m512* odd) {
  const __m512i words = _mm512_loadu_si512(activations);
  const __mmask16 even_passes = _mm512_cmpgt_epi32_mask(_mm512_slli_epi32(words, 16), _mm512_setzero_si512());
  *even = _mm512_maskz_mul_ps(even_passes, *even, scale);
  *odd = _mm512_maskz_mul_ps(_mm512_cmpgt_epi32_mask(words, _mm512_set1_epi32(0xFFFF)), *odd, scale);
}

// Stores sixteen columns of two rows in both forms of a panel.
DENSE_INLINE void StorePair(const Block& to, size_t panel, size_t row, size_t half, __m512 even, __m512 odd) {
  const __m256i low = Round(even), high = Round(odd);
  char* rows = to.rows + panel * to.rows_stride + row * kRowBytes + half * 2;
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(rows), low);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(rows + kRowBytes), high);
  if (to.pairs == nullptr) return;
  _mm512_storeu_si512(to.pairs + panel * to.pairs_stride + row / 2 * kPairBytes + half * 4, Interleave(low, high));
}

// One bit per column: whether dropout keeps it in this row of the panel.
DENSE_INLINE uint32_t KeptColumns(const Dropout& dropout, size_t row, size_t panel) {
  const auto bits = reinterpret_cast<__m512i>(DrawBits(dropout.key, row, panel));
  const __m512i threshold = _mm512_set1_epi32(static_cast<int>(dropout.threshold));
  const uint32_t low = _mm512_cmpge_epu32_mask(_mm512_and_si512(bits, _mm512_set1_epi32(0xFFFF)), threshold);
  const uint32_t high = _mm512_cmpge_epu32_mask(_mm512_srli_epi32(bits, 16), threshold);
  return low | high << kHalf;
}

// Ends a product. `c` holds an even number of rows, at most 32; rows at or past e.count are ignored.
DENSE_TARGET void FinishBfloat16(const float* c, size_t rows, size_t first, size_t panel, size_t columns,
                                 const Epilogue& e) {
  const __m512 zero = _mm512_setzero_ps(), mask_scale = _mm512_set1_ps(e.mask_scale);
  const __m512 kept_scale = _mm512_set1_ps(e.dropout.scale);
  uint32_t kept[kPanel];
  if (e.dropout.threshold > 0) {
    for (size_t r = 0; r < rows; ++r) kept[r] = KeptColumns(e.dropout, e.batch_row + first + r, panel);
  }
  for (size_t half = 0; half < kPanel; half += kHalf) {
    const size_t column = panel * kPanel + half;
    const __m512 scale = e.scale != nullptr ? _mm512_loadu_ps(e.scale + column) : _mm512_set1_ps(1.0f);
    const __m512 bias = e.bias != nullptr ? _mm512_loadu_ps(e.bias + column) : zero;
    const __mmask16 inside = MaskOf(columns > column ? columns - column : 0);
    for (size_t r = 0; r < rows; r += 2) {
      const size_t row = first + r;
      __m512 even = _mm512_fmadd_ps(_mm512_loadu_ps(c + r * kPanel + half), scale, bias);
      __m512 odd = _mm512_fmadd_ps(_mm512_loadu_ps(c + (r + 1) * kPanel + half), scale, bias);
      if (e.relu) {  // this order of operands keeps NaN
        even = _mm512_max_ps(zero, even);
        odd = _mm512_max_ps(zero, odd);
      }
      if (e.dropout.threshold > 0) {
        even = _mm512_maskz_mul_ps(static_cast<__mmask16>(kept[r] >> half), even, kept_scale);
        odd = _mm512_maskz_mul_ps(static_cast<__mmask16>(kept[r + 1] >> half), odd, kept_scale);
      }
      if (e.mask != nullptr) {
        Gate(e.mask->pairs + panel * e.mask->pairs_stride + row / 2 * kPairBytes + half * 4, mask_scale, &even, &odd);
      }
      if (row >= e.count) even = zero;
      if (row + 1 >= e.count) odd = zero;
      if (e.panels != nullptr) StorePair(*e.panels, panel, row, half, even, odd);
      if (e.dense == nullptr) continue;
      float* to = e.dense + row * e.dense_stride + column;
      if (row < e.count) _mm512_mask_storeu_ps(to, inside, even);
      if (row + 1 < e.count) _mm512_mask_storeu_ps(to + e.dense_stride, inside, odd);
    }
  }
}

// kMultiple: the Kernels' row_multiple.
template <size_t kMultiple>
DENSE_TARGET void LoadBfloat16(const float* source, size_t stride, size_t columns, const Block* mask, float mask_scale,
                               const Block& to) {
  const __m512 zero = _mm512_setzero_ps(), scale = _mm512_set1_ps(mask_scale);
  for (size_t panel = 0; panel < Panels(columns); ++panel) {
    for (size_t half = 0; half < kPanel; half += kHalf) {
      const size_t column = panel * kPanel + half;
      const __mmask16 inside = MaskOf(columns > column ? columns - column : 0);
      const float* from = source + column;
      for (size_t row = 0; row < RoundUp(to.count, kMultiple); row += 2) {
        __m512 even = row < to.count ? _mm512_maskz_loadu_ps(inside, from + row * stride) : zero;
        __m512 odd = row + 1 < to.count ? _mm512_maskz_loadu_ps(inside, from + (row + 1) * stride) : zero;
        if (mask != nullptr) {
          Gate(mask->pairs + panel * mask->pairs_stride + row / 2 * kPairBytes + half * 4, scale, &even, &odd);
        }
        StorePair(to, panel, row, half, even, odd);
      }
    }
  }
}

// The number of words in one panel of packed weights.
inline size_t PackedWords(size_t depth) { return RoundUp(depth, kPanel) / 2 * kPanel; }

DENSE_TARGET void PackForwardBfloat16(const float* weights, size_t out, size_t in, size_t first, size_t last,
                                      char* packed) {
  auto* to = reinterpret_cast<uint32_t*>(packed) + first * PackedWords(in);
  for (size_t panel = first; panel < last; ++panel, to += PackedWords(in)) {
    for (size_t half = 0; half < kPanel; half += kHalf) {
      for (size_t k = 0; k < in; k += kPanel) {
        __m512i word[16];
#pragma GCC unroll 16
        for (size_t i = 0; i < 16; ++i) {
          const size_t n = panel * kPanel + half + i;
          word[i] = _mm512_setzero_si512();
          if (n < out) {
            const float* from = weights + n * in + k;
            const __m512 low = _mm512_maskz_loadu_ps(MaskOf(in - k), from);
            const __m512 high = _mm512_maskz_loadu_ps(MaskOf(in - k > kHalf ? in - k - kHalf : 0), from + kHalf);
            word[i] = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
          }
        }
        Transpose16(word);
        for (size_t i = 0; i < 16; ++i) _mm512_storeu_si512(to + (k / 2 + i) * kPanel + half, word[i]);
      }
    }
  }
}

DENSE_TARGET void PackBackwardBfloat16(const float* weights, size_t out, size_t in, size_t first, size_t last,
                                       char* packed) {
  auto* to = reinterpret_cast<uint32_t*>(packed) + first * PackedWords(out);
  const __m512 zero = _mm512_setzero_ps();
  for (size_t panel = first; panel < last; ++panel, to += PackedWords(out)) {
    for (size_t half = 0; half < kPanel; half += kHalf) {
      const size_t column = panel * kPanel + half;
      const __mmask16 inside = MaskOf(in > column ? in - column : 0);
      for (size_t n = 0; n < RoundUp(out, kPanel); n += 2) {
        const float* from = weights + n * in + column;
        const __m512 even = n < out ? _mm512_maskz_loadu_ps(inside, from) : zero;
        const __m512 odd = n + 1 < out ? _mm512_maskz_loadu_ps(inside, from + in) : zero;
        _mm512_storeu_si512(to + n / 2 * kPanel + half, Interleave(Round(even), Round(odd)));
      }
    }
  }
}

DENSE_TARGET void BiasGradientBfloat16(const Block& dy, size_t first, size_t last, bool add, float* bias) {
  const __m512i high_half = _mm512_set1_epi32(static_cast<int>(0xFFFF0000u));
  const size_t words = (dy.count + 1) / 2;
  for (size_t n = first; n < last; n += kHalf) {
    const char* from = dy.pairs + n / kPanel * dy.pairs_stride + n % kPanel * 4;
    const __mmask16 inside = MaskOf(last - n);
    __m512 total = add ? _mm512_maskz_loadu_ps(inside, bias + n) : _mm512_setzero_ps();
    for (size_t done = 0; done < words; done += kGradientChunk) {
      __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
      for (size_t w = std::min(kGradientChunk, words - done); w > 0; --w, from += kPairBytes) {
        const __m512i pair = _mm512_loadu_si512(from);
        even = _mm512_add_ps(even, _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16)));
        odd = _mm512_add_ps(odd, _mm512_castsi512_ps(_mm512_and_si512(pair, high_half)));
      }
      total = _mm512_add_ps(total, _mm512_add_ps(even, odd));
    }
    _mm512_mask_storeu_ps(bias + n, inside, total);
  }
}

}  // namespace
}  // namespace elasticctr::dense
