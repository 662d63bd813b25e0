// Weighted sums of the columns of a row, for a first layer that was split (shared_layer.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace elasticctr::serve {

struct Rows {
  const float* data;
  size_t count, stride;
};

// out[r] += sum over `columns` c of rows[r][c], or its square, times weights[c]. Rows of weights and of `out` have
// `width` floats.
void AddColumns(Rows rows, std::span<const uint32_t> columns, const float* weights, size_t width, bool of_squares,
                float* out);

// out += sum over k < count of x[k], or its square, times weights[k]. Rows of weights have `width` floats; fastest for
// small widths.
void AddRun(const float* x, size_t count, const float* weights, size_t width, bool of_squares, float* out);

}  // namespace elasticctr::serve
