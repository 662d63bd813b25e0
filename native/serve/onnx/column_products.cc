#include "serve/onnx/column_products.h"

#include <cstring>

#include "util/target.h"

namespace elasticctr::serve {
namespace {

constexpr size_t kLanes = 16;
constexpr size_t kTile = 2 * kLanes;
constexpr size_t kBlock = 4;  // rows processed together

typedef float Vector __attribute__((vector_size(kLanes * sizeof(float))));

ELASTICCTR_INLINE void Load(const float* from, Vector* to) { std::memcpy(to, from, sizeof *to); }

template <size_t kRows>
ELASTICCTR_INLINE void AddTile(const float* rows, size_t stride, const uint32_t* columns, size_t count,
                               const float* weights, size_t width, bool of_squares, float* out) {
  Vector sums[kRows][2] = {};
  for (size_t k = 0; k < count; ++k) {
    const size_t column = columns[k];
    const float* from = weights + column * width;
    Vector low, high;
    Load(from, &low);
    Load(from + kLanes, &high);
#pragma GCC unroll 4
    for (size_t r = 0; r < kRows; ++r) {
      const float value = rows[r * stride + column];
      const float x = of_squares ? value * value : value;
      sums[r][0] += x * low;
      sums[r][1] += x * high;
    }
  }
#pragma GCC unroll 4
  for (size_t r = 0; r < kRows; ++r) {
    float* to = out + r * width;
    for (size_t j = 0; j < kLanes; ++j) to[j] += sums[r][0][j];
    for (size_t j = 0; j < kLanes; ++j) to[kLanes + j] += sums[r][1][j];
  }
}

template <size_t kRows>
ELASTICCTR_INLINE void AddBlock(const float* rows, size_t stride, const uint32_t* columns, size_t count,
                                const float* weights, size_t width, bool of_squares, float* out) {
  size_t j = 0;
  for (; j + kTile <= width; j += kTile) {
    AddTile<kRows>(rows, stride, columns, count, weights + j, width, of_squares, out + j);
  }
  if (j == width) return;
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t k = 0; k < count; ++k) {
      const float value = rows[r * stride + columns[k]];
      const float x = of_squares ? value * value : value;
      const float* from = weights + columns[k] * width;
      for (size_t i = j; i < width; ++i) out[r * width + i] += x * from[i];
    }
  }
}

ELASTICCTR_CLONES void AddAll(const float* rows, size_t row_count, size_t stride, const uint32_t* columns, size_t count,
                              const float* weights, size_t width, bool of_squares, float* out) {
  size_t r = 0;
  for (; r + kBlock <= row_count; r += kBlock) {
    AddBlock<kBlock>(rows + r * stride, stride, columns, count, weights, width, of_squares, out + r * width);
  }
  for (; r < row_count; ++r) {
    AddBlock<1>(rows + r * stride, stride, columns, count, weights, width, of_squares, out + r * width);
  }
}

ELASTICCTR_CLONES float Dot(const float* x, const float* weights, size_t count, bool of_squares) {
  float sum = 0;
  size_t k = 0;
  if (count >= kLanes) {
    Vector sums = {};
    for (; k + kLanes <= count; k += kLanes) {
      Vector values, factors;
      Load(x + k, &values);
      Load(weights + k, &factors);
      sums += (of_squares ? values * values : values) * factors;
    }
    for (size_t j = 0; j < kLanes; ++j) sum += sums[j];
  }
  for (; k < count; ++k) sum += (of_squares ? x[k] * x[k] : x[k]) * weights[k];
  return sum;
}

}  // namespace

void AddColumns(Rows rows, std::span<const uint32_t> columns, const float* weights, size_t width, bool of_squares,
                float* out) {
  AddAll(rows.data, rows.count, rows.stride, columns.data(), columns.size(), weights, width, of_squares, out);
}

void AddRun(const float* x, size_t count, const float* weights, size_t width, bool of_squares, float* out) {
  if (width == 1) {
    *out += Dot(x, weights, count, of_squares);
    return;
  }
  for (size_t k = 0; k < count; ++k, weights += width) {
    const float value = of_squares ? x[k] * x[k] : x[k];
    for (size_t j = 0; j < width; ++j) out[j] += value * weights[j];
  }
}

}  // namespace elasticctr::serve
