// The arithmetic of towers: one table of functions per instruction set.
//
// Matrices of activations and gradients are kept in panels of 32 columns: panel p holds columns [32p, 32p + 32) of all
// rows, row after row, so that products read memory sequentially at any width. Columns past the width are zero. bf16
// has two forms: products along the columns read `rows` (32 bf16 per row); the weight gradient, a product along the
// rows, reads `pairs` (rows 2i and 2i + 1 interleaved column by column). In fp32 one form serves both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "dense/tower/dropout.h"

namespace elasticctr::dense {

inline constexpr size_t kPanel = 32;

// The most rows any kernel sums before adding to memory; a multiple of every other kernel's count.
inline constexpr size_t kGradientRows = 512;

// Sums over the batch are first taken over blocks of this many rows.
inline constexpr size_t kSumRows = 32;

inline constexpr size_t RoundUp(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }
inline constexpr size_t Panels(size_t columns) { return (columns + kPanel - 1) / kPanel; }

enum class Precision : uint8_t { kFloat32, kBfloat16 };

// Consecutive rows of a matrix in panels. Strides are bytes from one panel to the next.
struct Block {
  char* rows = nullptr;
  size_t rows_stride = 0;
  char* pairs = nullptr;  // null if no weight gradient will be computed
  size_t pairs_stride = 0;
  size_t count = 0;  // rows
};

// Applied to a product before it is stored. Forward: * scale, + bias, ReLU, dropout. Backward: zero where `mask` is not
// positive (dropout leaves a zero, as the ReLU does) and * mask_scale elsewhere.
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

// The gradient g after batch norm's backward pass: slope * g + along * (z - mean) + constant. All are per column and
// padded.
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

  // Called before and after the calls below, in the thread that makes them. May be null.
  void (*begin)();
  void (*end)();

  // Panels [first, last) of the weights [out, in] packed for y = x Wᵀ and for dx = dy W.
  void (*pack_forward)(const float* weights, size_t out, size_t in, size_t first, size_t last, char* packed);
  void (*pack_backward)(const float* weights, size_t out, size_t in, size_t first, size_t last, char* packed);

  // Loads row-major floats into panels and applies the mask, if given.
  void (*load)(const float* source, size_t stride, size_t columns, const Block* mask, float mask_scale,
               const Block& to);

  // a [count, depth] times packed weights [depth, columns].
  void (*multiply)(const Block& a, size_t depth, const char* packed, size_t columns, const Epilogue& epilogue);

  // Rows [first, last) of dW = dyᵀ x and of the bias gradient, written to weights [out, in] and bias or, with `add`,
  // added to them. Sums are taken in chunks of rows, each added to memory in turn, so splitting a batch into pieces of
  // kGradientRows does not change the result. REQUIRES: first is a multiple of 32.
  void (*weight_gradient)(const Block& dy, const Block& x, size_t in, size_t first, size_t last, bool add,
                          float* weights, float* bias);

  // Batch norm. `z` and `g` are read in their `rows` form. Sums are taken over blocks of kSumRows rows, in order; for
  // each block the first kind for all columns comes before the second kind, padded to whole panels.
  // Sums of z, and of the squared differences from the mean of the block's rows.
  void (*moments)(const Block& z, size_t columns, float* sums);
  // Applies the epilogue to a product that was kept in z.
  void (*finish)(const Block& z, size_t columns, const Epilogue& epilogue);
  // Sums of g and of g * (z - mean).
  void (*norm_sums)(const Block& g, const Block& z, size_t columns, const float* mean, float* sums);
  void (*norm_gradient)(const Block& g, const Block& z, size_t columns, const NormSlopes& slopes, const Block& to);

  size_t packed_bytes(size_t depth, size_t columns) const {
    return Panels(columns) * kPanel * RoundUp(depth, kPanel) * element_bytes;
  }
  // Panels a power of two apart would compete for the same cache sets.
  size_t panel_bytes(size_t rows) const {
    return RoundUp(rows, row_multiple) * kPanel * element_bytes + (rows >= 256 ? kPanelGap : 0);
  }
  static constexpr size_t kPanelGap = 16384 + 128;
};

// Every set of kernels this CPU can run, best first within a precision.
const std::vector<const Kernels*>& UsableKernels();

// The best set for `precision`; fp32 kernels if the CPU has nothing faster for bf16. With a name, returns that set and
// throws Error (kConfig) if this CPU cannot run it.
const Kernels& FindKernels(Precision precision, std::string_view name = {});

}  // namespace elasticctr::dense
