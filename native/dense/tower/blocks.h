// Shared by the passes through a tower: blocks of rows, their scratch memory, and stages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "dense/buffer.h"
#include "dense/kernels/kernels.h"
#include "util/flush_denormals.h"

namespace elasticctr::dense {

// Rows taken through all layers at once: enough to pay for reading the weights, few enough to stay in cache and to let
// a free thread take over work that a delayed thread has not started.
inline constexpr size_t kMostBlockRows = 128;

// Blocks start at multiples of this.
inline constexpr size_t kBlockUnit = 32;
static_assert(kBlockUnit % kSumRows == 0);

// Gives every thread the same number of blocks, as large as allowed. Results do not depend on it.
inline size_t BlockRows(size_t rows, size_t threads) {
  const size_t rounds = (rows + threads * kMostBlockRows - 1) / (threads * kMostBlockRows);
  return RoundUp((rows + rounds * threads - 1) / (rounds * threads), kBlockUnit);
}

// Puts the current thread into the kernels' state for its lifetime, and treats subnormal numbers as zero. One per task.
class KernelScope {
 public:
  explicit KernelScope(const Kernels& kernels) : kernels_(kernels) {
    if (kernels_.begin != nullptr) kernels_.begin();
  }
  ~KernelScope() {
    if (kernels_.end != nullptr) kernels_.end();
  }
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;

 private:
  const Kernels& kernels_;
  const FlushDenormals flush_denormals_;
};

// Two thread-local blocks, which a row block alternates between on its way from layer to layer.
inline Buffer& Scratch(size_t index, size_t bytes) {
  thread_local Buffer buffers[2];
  buffers[index % 2].Reserve(bytes);
  return buffers[index % 2];
}

// Rows [first, first + count) of a matrix of `rows` that is kept for products along them.
inline Block Slice(const Kernels& kernels, const Buffer& buffer, size_t rows, size_t first, size_t count) {
  Block block;
  block.pairs = buffer.data() + first * kPanel * kernels.element_bytes;
  block.pairs_stride = kernels.panel_bytes(rows);
  block.count = count;
  if (kernels.precision == Precision::kFloat32) {
    block.rows = block.pairs;
    block.rows_stride = block.pairs_stride;
  }
  return block;
}

// The same for a matrix kept for products along columns and for elementwise work.
inline Block SliceRows(const Kernels& kernels, const Buffer& buffer, size_t rows, size_t first, size_t count) {
  Block block;
  block.rows = buffer.data() + first * kPanel * kernels.element_bytes;
  block.rows_stride = kernels.panel_bytes(rows);
  block.count = count;
  return block;
}

// Attaches temporary `rows` memory to a block whose two forms differ, for as long as a thread needs it.
inline void AddRows(const Kernels& kernels, size_t index, size_t columns, size_t count, Block& block) {
  if (block.rows != nullptr) return;
  block.rows_stride = kernels.panel_bytes(count);
  block.rows = Scratch(index, Panels(columns) * block.rows_stride).data();
  block.count = count;
}

// Layers [begin, end), which blocks of rows pass through one after the other. A batch norm separates two stages because
// it has to see all rows.
struct Stage {
  size_t begin, end;
};

// With batch norm each layer is a stage. If the last layer has a norm, an empty stage follows it.
inline std::vector<Stage> Stages(size_t layers, bool relu_last, bool has_norms) {
  if (!has_norms) return {{0, layers}};
  std::vector<Stage> stages;
  for (size_t l = 0; l < layers; ++l) stages.push_back({l, l + 1});
  if (relu_last) stages.push_back({layers, layers});
  return stages;
}

}  // namespace elasticctr::dense
