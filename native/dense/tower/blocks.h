// What the passes through a tower share: blocks of rows, the memory they go through and the stages they go in.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "dense/buffer.h"
#include "dense/kernels/kernels.h"
#include "util/flush_denormals.h"

namespace elasticctr::dense {

// Rows taken through all layers at once: enough to pay for reading the weights, few enough to stay in cache and to let
// one thread take over what another, held up by the rest of the machine, has not begun.
inline constexpr size_t kMostBlockRows = 128;

// Blocks start at multiples of this.
inline constexpr size_t kBlockUnit = 32;
static_assert(kBlockUnit % kSumRows == 0);

// The same number of blocks for every thread, as large as allowed. Results do not depend on it.
inline size_t BlockRows(size_t rows, size_t threads) {
  const size_t rounds = (rows + threads * kMostBlockRows - 1) / (threads * kMostBlockRows);
  return RoundUp((rows + rounds * threads - 1) / (rounds * threads), kBlockUnit);
}

// Between products of one task, in the thread that runs it.
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

// Two blocks of a thread's own, which a row block passes through on its way from layer to layer.
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

// The same of a matrix that is kept for products along columns, and for everything done by element.
inline Block SliceRows(const Kernels& kernels, const Buffer& buffer, size_t rows, size_t first, size_t count) {
  Block block;
  block.rows = buffer.data() + first * kPanel * kernels.element_bytes;
  block.rows_stride = kernels.panel_bytes(rows);
  block.count = count;
  return block;
}

// Gives a block whose rows are another thing than its pairs rows for the time a thread needs them.
inline void AddRows(const Kernels& kernels, size_t index, size_t columns, size_t count, Block& block) {
  if (block.rows != nullptr) return;
  block.rows_stride = kernels.panel_bytes(count);
  block.rows = Scratch(index, Panels(columns) * block.rows_stride).data();
  block.count = count;
}

// Layers [begin, end), which blocks of rows go through one after the other. Between two stages stands a batch norm,
// which has to see all rows.
struct Stage {
  size_t begin, end;
};

// With batch norm each layer is a stage; the end of a last one that has a norm is an empty stage of its own.
inline std::vector<Stage> Stages(size_t layers, bool relu_last, bool has_norms) {
  if (!has_norms) return {{0, layers}};
  std::vector<Stage> stages;
  for (size_t l = 0; l < layers; ++l) stages.push_back({l, l + 1});
  if (relu_last) stages.push_back({layers, layers});
  return stages;
}

}  // namespace elasticctr::dense
