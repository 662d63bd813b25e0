// The arithmetic of towers, once per instruction set behind one table of functions.
//
// Matrices of activations and gradients are kept in panels of 32 columns: panel p holds columns [32p, 32p + 32)
// of all rows, row after row, so that products read memory in straight lines whatever the width. Columns past
// the width are zero. In bf16 there are two forms: `rows` (32 bf16 per row) is what a product along the columns
// reads, `pairs` (rows 2i and 2i + 1 interleaved column by column) is what the weight gradient, a product along
// the rows, reads. In fp32 one form serves both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "dense/tower/dropout.h"

namespace elasticctr::dense {

inline constexpr size_t kPanel = 32;

// The most rows any kernel sums before it adds to memory; a multiple of what every other one does.
inline constexpr size_t kGradientRows = 512;

// Rows that sums over the batch are first taken of.
inline constexpr size_t kSumRows = 32;

inline constexpr size_t RoundUp(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }
inline constexpr size_t Panels(size_t columns) { return (columns + kPanel - 1) / kPanel; }

enum class Precision : uint8_t { kFloat32, kBfloat16 };

// Consecutive rows of a matrix in panels. Strides are bytes from one panel to the next.
struct Block {
  char* rows = nullptr;
  size_t rows_stride = 0;
  char* pairs = nullptr;  // null where no weight gradient will be asked for
  size_t pairs_stride = 0;
  size_t count = 0;  // rows
};

// What happens to a product before it is stored: * scale, + bias, ReLU, dropout; or, on the way back, zero where `mask`
// is not positive (dropout left a zero as the ReLU did) and * mask_scale elsewhere.
struct Epilogue {
  size_t count = 0;              // rows; what panels hold past them is zero
  const float* scale = nullptr;  // both padded to whole panels
  const float* bias = nullptr;
  bool relu = false;
  Dropout dropout;
  size_t batch_row = 0;         // where in the batch the rows begin
  const Block* mask = nullptr;  // activations the gradient passes through (rows in fp32, pairs in bf16)
  float mask_scale = 1.0f;
  const Block* panels = nullptr;  // destination in panels, and / or
  float* dense = nullptr;         // row-major destination
  size_t dense_stride = 0;        // floats between its rows
};

// How a gradient g goes back through batch norm: slope * g + along * (z - mean) + constant, each by column and padded.
struct NormSlopes {
  const float* mean;
  const float* slope;
  const float* along;
  const float* constant;
};

struct Kernels {
  const char* name;
  Precision precision;
  size_t element_bytes;  // of panels and packed weights
  size_t row_multiple;   // blocks start at multiples of this and are stored up to the next one, zero past count

  // Around the calls below, in the thread that makes them. May be null.
  void (*begin)();
  void (*end)();

  // Panels [first, last) of the weights [out, in] packed for y = x Wᵀ and for dx = dy W.
  void (*pack_forward)(const float* weights, size_t out, size_t in, size_t first, size_t last, char* packed);
  void (*pack_backward)(const float* weights, size_t out, size_t in, size_t first, size_t last, char* packed);

  // Row-major floats into panels; where there is a mask, as it says.
  void (*load)(const float* source, size_t stride, size_t columns, const Block* mask, float mask_scale,
               const Block& to);

  // a [count, depth] times packed weights [depth, columns].
  void (*multiply)(const Block& a, size_t depth, const char* packed, size_t columns, const Epilogue& epilogue);

  // Rows [first, last) of dW = dyᵀ x and of the bias gradient, written to weights [out, in] and bias or, with `add`,
  // added to them. Sums go in chunks of rows, each added to memory in turn: handing over a batch in pieces of
  // kGradientRows changes nothing. REQUIRES: first is a multiple of 32.
  void (*weight_gradient)(const Block& dy, const Block& x, size_t in, size_t first, size_t last, bool add,
                          float* weights, float* bias);

  // Batch norm. `z` and `g` are read in their `rows` form; sums are those of each kSumRows rows, in order: for each the
  // first kind and then the second kind of all columns, padded to whole panels.
  // Sums of z, and of the squares of what it differs by from the mean of those rows.
  void (*moments)(const Block& z, size_t columns, float* sums);
  // The end of a product that was kept in z.
  void (*finish)(const Block& z, size_t columns, const Epilogue& epilogue);
  // Sums of g and of g * (z - mean).
  void (*norm_sums)(const Block& g, const Block& z, size_t columns, const float* mean, float* sums);
  void (*norm_gradient)(const Block& g, const Block& z, size_t columns, const NormSlopes& slopes, const Block& to);

  size_t packed_bytes(size_t depth, size_t columns) const {
    return Panels(columns) * kPanel * RoundUp(depth, kPanel) * element_bytes;
  }
  // Panels a power of two apart would compete for the same few places in every cache.
  size_t panel_bytes(size_t rows) const {
    return RoundUp(rows, row_multiple) * kPanel * element_bytes + (rows >= 256 ? kPanelGap : 0);
  }
  static constexpr size_t kPanelGap = 16384 + 128;
};

// Every set of kernels this CPU can run, best first within a precision.
const std::vector<const Kernels*>& UsableKernels();

// The best for `precision`: fp32 ones where the CPU has nothing faster for bf16. With a name, that set; throws Error
// (kConfig) if this CPU cannot run it.
const Kernels& FindKernels(Precision precision, std::string_view name = {});

}  // namespace elasticctr::dense
