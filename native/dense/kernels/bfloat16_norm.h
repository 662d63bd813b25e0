// Batch norm of bf16 panels, to be included like panel_kernels.h. Sums are float32.
#pragma once

#include "dense/kernels/bfloat16_panels.h"

namespace elasticctr::dense {
namespace {

// Sixteen columns of a row.
DENSE_INLINE __m512 Widen(const char* from) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

DENSE_INLINE const char* RowOf(const Block& block, size_t column, size_t row) {
  return block.rows + column / kPanel * block.rows_stride + row * kRowBytes + column % kPanel * 2;
}

DENSE_TARGET void MomentsBfloat16(const Block& z, size_t columns, float* sums) {
  const size_t padded = Panels(columns) * kPanel;
  for (size_t column = 0; column < padded; column += kHalf) {
    for (size_t first = 0; first < z.count; first += kSumRows) {
      const size_t rows = std::min(kSumRows, z.count - first);
      const char* const from = RowOf(z, column, first);
      __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()}, square[2] = {sum[0], sum[0]};
      for (size_t r = 0; r < rows; ++r) sum[r % 2] = _mm512_add_ps(sum[r % 2], Widen(from + r * kRowBytes));
      const __m512 total = _mm512_add_ps(sum[0], sum[1]);
      const __m512 mean = _mm512_mul_ps(total, _mm512_set1_ps(1.0f / static_cast<float>(rows)));
      for (size_t r = 0; r < rows; ++r) {
        const __m512 d = _mm512_sub_ps(Widen(from + r * kRowBytes), mean);
        square[r % 2] = _mm512_fmadd_ps(d, d, square[r % 2]);
      }
      float* const to = sums + first / kSumRows * 2 * padded + column;
      _mm512_storeu_ps(to, total);
      _mm512_storeu_ps(to + padded, _mm512_add_ps(square[0], square[1]));
    }
  }
}

// kMultiple: the Kernels' row_multiple.
template <size_t kMultiple>
DENSE_TARGET void FinishPanelsBfloat16(const Block& z, size_t columns, const Epilogue& epilogue) {
  alignas(64) float c[kMultiple * kPanel];
  for (size_t panel = 0; panel < Panels(columns); ++panel) {
    for (size_t first = 0; first < z.count; first += kMultiple) {
      for (size_t r = 0; r < kMultiple; ++r) {
        const char* const from = RowOf(z, panel * kPanel, first + r);
        _mm512_store_ps(c + r * kPanel, Widen(from));
        _mm512_store_ps(c + r * kPanel + kHalf, Widen(from + kHalf * 2));
      }
      FinishBfloat16(c, kMultiple, first, panel, columns, epilogue);
    }
  }
}

DENSE_TARGET void NormSumsBfloat16(const Block& g, const Block& z, size_t columns, const float* mean, float* sums) {
  const size_t padded = Panels(columns) * kPanel;
  for (size_t column = 0; column < padded; column += kHalf) {
    const __m512 center = _mm512_loadu_ps(mean + column);
    for (size_t first = 0; first < g.count; first += kSumRows) {
      const size_t rows = std::min(kSumRows, g.count - first);
      const char* const gradients = RowOf(g, column, first);
      const char* const values = RowOf(z, column, first);
      __m512 sum = _mm512_setzero_ps(), product = _mm512_setzero_ps();
      for (size_t r = 0; r < rows; ++r) {
        const __m512 gradient = Widen(gradients + r * kRowBytes);
        sum = _mm512_add_ps(sum, gradient);
        product = _mm512_fmadd_ps(gradient, _mm512_sub_ps(Widen(values + r * kRowBytes), center), product);
      }
      float* const to = sums + first / kSumRows * 2 * padded + column;
      _mm512_storeu_ps(to, sum);
      _mm512_storeu_ps(to + padded, product);
    }
  }
}

template <size_t kMultiple>
DENSE_TARGET void NormGradientBfloat16(const Block& g, const Block& z, size_t columns, const NormSlopes& slopes,
                                       const Block& to) {
  const __m512 zero = _mm512_setzero_ps();
  for (size_t column = 0; column < Panels(columns) * kPanel; column += kHalf) {
    const __m512 mean = _mm512_loadu_ps(slopes.mean + column), slope = _mm512_loadu_ps(slopes.slope + column);
    const __m512 along = _mm512_loadu_ps(slopes.along + column), constant = _mm512_loadu_ps(slopes.constant + column);
    const char* const gradients = RowOf(g, column, 0);
    const char* const values = RowOf(z, column, 0);
    for (size_t row = 0; row < RoundUp(to.count, kMultiple); row += 2) {
      __m512 pair[2] = {zero, zero};
#pragma GCC unroll 2
      for (size_t i = 0; i < 2; ++i) {
        if (row + i >= to.count) continue;
        const __m512 d = _mm512_sub_ps(Widen(values + (row + i) * kRowBytes), mean);
        const __m512 part = _mm512_fmadd_ps(d, along, constant);
        pair[i] = _mm512_fmadd_ps(Widen(gradients + (row + i) * kRowBytes), slope, part);
      }
      StorePair(to, column / kPanel, row, column % kPanel, pair[0], pair[1]);
    }
  }
}

}  // namespace
}  // namespace elasticctr::dense
