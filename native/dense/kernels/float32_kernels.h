// The fp32 kernels over any vector type, to be included like panel_kernels.h. V also provides Add, Subtract, Multiply,
// Positive (the ReLU of a register; NaN stays) and Gate(by, value): 0 where `by` is not positive.
#pragma once

#include "dense/kernels/dropout_kernel.h"
#include "dense/kernels/panel_kernels.h"

namespace elasticctr::dense {
namespace {

constexpr size_t kRowBytes = kPanel * sizeof(float);

template <typename V>
DENSE_TARGET void FinishFloat32(const float* c, size_t rows, size_t first, size_t panel, size_t columns,
                                const Epilogue& e) {
  const size_t width = columns - panel * kPanel;
  const auto mask_scale = V::Broadcast(&e.mask_scale);
  alignas(64) float kept[kPanel], narrow[kPanel];
  for (size_t r = 0; r < rows; ++r, c += kPanel) {
    const size_t row = first + r;
    if (e.dropout.threshold > 0) DrawScales(e.dropout, e.batch_row + row, panel, kept);
#pragma GCC unroll 8
    for (size_t j = 0; j < kPanel; j += V::kLanes) {
      const size_t column = panel * kPanel + j;
      typename V::Register value = V::Load(c + j);
      if (e.scale != nullptr) value = V::Multiply(value, V::Load(e.scale + column));
      if (e.bias != nullptr) value = V::Add(value, V::Load(e.bias + column));
      if (e.relu) value = V::Positive(value);
      if (e.dropout.threshold > 0) value = V::Multiply(value, V::Load(kept + j));
      if (e.mask != nullptr) {
        const auto* mask = reinterpret_cast<const float*>(e.mask->rows + panel * e.mask->rows_stride + row * kRowBytes);
        value = V::Gate(V::Load(mask + j), V::Multiply(value, mask_scale));
      }
      if (e.panels != nullptr) {
        V::Store(reinterpret_cast<float*>(e.panels->rows + panel * e.panels->rows_stride + row * kRowBytes) + j, value);
      }
      if (e.dense == nullptr) continue;
      if (width >= kPanel) {
        V::Store(e.dense + row * e.dense_stride + column, value);
      } else {
        V::Store(narrow + j, value);
      }
    }
    if (e.dense != nullptr && width < kPanel) {
      float* const to = e.dense + row * e.dense_stride + panel * kPanel;
      for (size_t j = 0; j < width; ++j) to[j] = narrow[j];
    }
  }
}

template <typename V>
DENSE_TARGET void MultiplyFloat32(const Block& a, size_t depth, const char* packed, size_t columns,
                                  const Epilogue& epilogue) {
  MultiplyPanels<V, 1, FinishFloat32<V>>(a, depth, depth * kPanel, packed, columns, epilogue);
}

DENSE_TARGET void BiasGradientFloat32(const Block& dy, size_t first, size_t last, bool add, float* bias) {
  for (size_t n = first; n < last; n += kPanel) {
    const auto* row = reinterpret_cast<const float*>(dy.pairs + n / kPanel * dy.pairs_stride);
    const size_t bytes = std::min(kPanel, last - n) * sizeof(float);
    alignas(64) float total[kPanel] = {};
    if (add) std::memcpy(total, bias + n, bytes);
    for (size_t done = 0; done < dy.count; done += kGradientChunk) {
      alignas(64) float sum[kPanel] = {};
      for (size_t r = std::min(kGradientChunk, dy.count - done); r > 0; --r, row += kPanel) {
        for (size_t j = 0; j < kPanel; ++j) sum[j] += row[j];
      }
      for (size_t j = 0; j < kPanel; ++j) total[j] += sum[j];
    }
    std::memcpy(bias + n, total, bytes);
  }
}

template <typename V>
DENSE_TARGET void WeightGradientFloat32(const Block& dy, const Block& x, size_t in, size_t first, size_t last, bool add,
                                        float* weights, float* bias) {
  GradientPanels<V>(dy, x, dy.count, in, first, last, add, weights);
  BiasGradientFloat32(dy, first, last, add, bias);
}

template <typename V>
DENSE_TARGET void LoadFloat32(const float* source, size_t stride, size_t columns, const Block* mask, float mask_scale,
                              const Block& to) {
  for (size_t panel = 0; panel < Panels(columns); ++panel) {
    const size_t width = std::min(kPanel, columns - panel * kPanel);
    auto* row = reinterpret_cast<float*>(to.rows + panel * to.rows_stride);
    const float* from = source + panel * kPanel;
    for (size_t r = 0; r < to.count; ++r, row += kPanel, from += stride) {
      if (width == kPanel) {
        std::memcpy(row, from, kRowBytes);
      } else {
        for (size_t j = 0; j < kPanel; ++j) row[j] = j < width ? from[j] : 0.0f;
      }
      if (mask == nullptr) continue;
      const auto* gate = reinterpret_cast<const float*>(mask->rows + panel * mask->rows_stride + r * kRowBytes);
      for (size_t j = 0; j < kPanel; j += V::kLanes) {
        V::Store(row + j, V::Gate(V::Load(gate + j), V::Multiply(V::Load(row + j), V::Broadcast(&mask_scale))));
      }
    }
  }
}

DENSE_TARGET void PackBackwardFloat32(const float* weights, size_t out, size_t in, size_t first, size_t last,
                                      char* packed) {
  auto* to = reinterpret_cast<float*>(packed) + first * out * kPanel;
  for (size_t panel = first; panel < last; ++panel) {
    const size_t width = std::min(kPanel, in - panel * kPanel);
    for (size_t n = 0; n < out; ++n, to += kPanel) {
      const float* from = weights + n * in + panel * kPanel;
      if (width == kPanel) {
        std::memcpy(to, from, kRowBytes);
      } else {
        for (size_t j = 0; j < kPanel; ++j) to[j] = j < width ? from[j] : 0.0f;
      }
    }
  }
}

// Works element by element; avx512.cc has a faster version.
[[maybe_unused]] DENSE_TARGET void PackForwardFloat32(const float* weights, size_t out, size_t in, size_t first,
                                                      size_t last, char* packed) {
  auto* to = reinterpret_cast<float*>(packed) + first * in * kPanel;
  for (size_t panel = first; panel < last; ++panel, to += in * kPanel) {
    for (size_t j = 0; j < kPanel; ++j) {
      const size_t n = panel * kPanel + j;
      for (size_t k = 0; k < in; ++k) to[k * kPanel + j] = n < out ? weights[n * in + k] : 0.0f;
    }
  }
}

}  // namespace
}  // namespace elasticctr::dense
