// Batch norm of fp32 panels over any vector type, to be included like panel_kernels.h.
#pragma once

#include "dense/kernels/float32_kernels.h"

namespace elasticctr::dense {
namespace {

inline const float* RowOf(const Block& block, size_t panel, size_t row) {
  return reinterpret_cast<const float*>(block.rows + panel * block.rows_stride + row * kRowBytes);
}

template <typename V>
DENSE_TARGET void MomentsFloat32(const Block& z, size_t columns, float* sums) {
  constexpr size_t kAcross = kPanel / V::kLanes;
  const size_t padded = Panels(columns) * kPanel;
  for (size_t panel = 0; panel < Panels(columns); ++panel) {
    for (size_t first = 0; first < z.count; first += kSumRows) {
      const size_t rows = std::min(kSumRows, z.count - first);
      const float share = 1.0f / static_cast<float>(rows);
      const float* const from = RowOf(z, panel, first);
      float* const to = sums + first / kSumRows * 2 * padded + panel * kPanel;
      typename V::Register sum[kAcross], square[kAcross];
#pragma GCC unroll 8
      for (size_t v = 0; v < kAcross; ++v) sum[v] = square[v] = V::Zero();
      for (size_t r = 0; r < rows; ++r) {
#pragma GCC unroll 8
        for (size_t v = 0; v < kAcross; ++v) sum[v] = V::Add(sum[v], V::Load(from + r * kPanel + v * V::kLanes));
      }
#pragma GCC unroll 8
      for (size_t v = 0; v < kAcross; ++v) {
        V::Store(to + v * V::kLanes, sum[v]);
        sum[v] = V::Multiply(sum[v], V::Broadcast(&share));
      }
      for (size_t r = 0; r < rows; ++r) {
#pragma GCC unroll 8
        for (size_t v = 0; v < kAcross; ++v) {
          const auto d = V::Subtract(V::Load(from + r * kPanel + v * V::kLanes), sum[v]);
          square[v] = V::MultiplyAdd(d, d, square[v]);
        }
      }
#pragma GCC unroll 8
      for (size_t v = 0; v < kAcross; ++v) V::Store(to + padded + v * V::kLanes, square[v]);
    }
  }
}

template <typename V>
DENSE_TARGET void FinishPanelsFloat32(const Block& z, size_t columns, const Epilogue& epilogue) {
  for (size_t panel = 0; panel < Panels(columns); ++panel) {
    FinishFloat32<V>(RowOf(z, panel, 0), z.count, 0, panel, columns, epilogue);
  }
}

template <typename V>
DENSE_TARGET void NormSumsFloat32(const Block& g, const Block& z, size_t columns, const float* mean, float* sums) {
  constexpr size_t kAcross = kPanel / V::kLanes;
  const size_t padded = Panels(columns) * kPanel;
  for (size_t panel = 0; panel < Panels(columns); ++panel) {
    for (size_t first = 0; first < g.count; first += kSumRows) {
      const size_t rows = std::min(kSumRows, g.count - first);
      const float* const gradients = RowOf(g, panel, first);
      const float* const values = RowOf(z, panel, first);
      float* const to = sums + first / kSumRows * 2 * padded + panel * kPanel;
      typename V::Register sum[kAcross], product[kAcross], center[kAcross];
#pragma GCC unroll 8
      for (size_t v = 0; v < kAcross; ++v) {
        sum[v] = product[v] = V::Zero();
        center[v] = V::Load(mean + panel * kPanel + v * V::kLanes);
      }
      for (size_t r = 0; r < rows; ++r) {
#pragma GCC unroll 8
        for (size_t v = 0; v < kAcross; ++v) {
          const auto gradient = V::Load(gradients + r * kPanel + v * V::kLanes);
          const auto d = V::Subtract(V::Load(values + r * kPanel + v * V::kLanes), center[v]);
          sum[v] = V::Add(sum[v], gradient);
          product[v] = V::MultiplyAdd(gradient, d, product[v]);
        }
      }
#pragma GCC unroll 8
      for (size_t v = 0; v < kAcross; ++v) {
        V::Store(to + v * V::kLanes, sum[v]);
        V::Store(to + padded + v * V::kLanes, product[v]);
      }
    }
  }
}

template <typename V>
DENSE_TARGET void NormGradientFloat32(const Block& g, const Block& z, size_t columns, const NormSlopes& slopes,
                                      const Block& to) {
  for (size_t panel = 0; panel < Panels(columns); ++panel) {
    const float* gradients = RowOf(g, panel, 0);
    const float* values = RowOf(z, panel, 0);
    auto* out = reinterpret_cast<float*>(to.rows + panel * to.rows_stride);
    for (size_t row = 0; row < to.count; ++row, gradients += kPanel, values += kPanel, out += kPanel) {
#pragma GCC unroll 8
      for (size_t j = 0; j < kPanel; j += V::kLanes) {
        const size_t column = panel * kPanel + j;
        const auto d = V::Subtract(V::Load(values + j), V::Load(slopes.mean + column));
        const auto part = V::MultiplyAdd(d, V::Load(slopes.along + column), V::Load(slopes.constant + column));
        V::Store(out + j, V::MultiplyAdd(V::Load(gradients + j), V::Load(slopes.slope + column), part));
      }
    }
  }
}

}  // namespace
}  // namespace elasticctr::dense
