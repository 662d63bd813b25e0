// A tower: Linear layers with ReLU between them, trained on the CPU faster than a general tensor library can.
//
// A step packs the weights once, then takes blocks of rows through all layers while they are in cache: forward,
// later backward to the gradient of the input. Weight gradients follow, one task per range of output rows, each summing
// over the batch in order. So every number is computed in the same order whatever the number of threads.
//
// Threads: one tower may be used from several threads as long as each call has its own Workspace.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "dense/buffer.h"
#include "dense/kernels.h"

namespace elasticctr::dense {

// What a forward pass leaves for its backward pass. Reusable for any number of steps, by one tower.
struct Workspace {
  size_t rows = 0;                   // of the forward pass that filled it; 0 when it holds none
  std::vector<Buffer> activations;   // what each layer reads, then the output where it has a ReLU
  std::vector<Buffer> gradients[2];  // of what each layer writes, for some rows at a time, in turn
  std::vector<Buffer> packed;        // weights, and after them the padded biases
};

// A row-major matrix of floats; `stride` floats from one row to the next.
struct Rows {
  const float* data = nullptr;
  size_t stride = 0;
};
struct MutableRows {
  float* data = nullptr;
  size_t stride = 0;
};

class Tower {
 public:
  // widths: input, then each layer's output. REQUIRES: at least two, none 0.
  Tower(std::vector<size_t> widths, bool relu_last, const Kernels& kernels);

  const std::vector<size_t>& widths() const { return widths_; }
  bool relu_last() const { return relu_last_; }
  size_t layers() const { return widths_.size() - 1; }
  const Kernels& kernels() const { return kernels_; }

  // weights[l]: [widths[l + 1], widths[l]] row-major, biases[l]: [widths[l + 1]]. With `keep` the workspace can take
  // a Backward afterwards. `finish(first, count)`, if there is one, is called for every range of rows as soon as y has
  // them, by the thread that computed them; ranges start at multiples of kBlockUnit and are whole ones but the last.
  using Finish = std::function<void(size_t, size_t)>;
  static constexpr size_t kBlockUnit = 32;
  void Forward(Rows x, size_t rows, const float* const* weights, const float* const* biases, MutableRows y,
               Workspace& workspace, bool keep, const Finish& finish = {}) const;

  // Gradients of the workspace's last Forward, whose weights must still be what they were. dx.data may be null.
  // Ends the workspace's hold of that Forward. REQUIRES: workspace.rows > 0.
  void Backward(Rows dy, const float* const* weights, MutableRows dx, float* const* weight_gradients,
                float* const* bias_gradients, Workspace& workspace) const;

 private:
  void Pack(const float* const* weights, const float* const* biases, Workspace& workspace) const;
  // Rows [first, last), among the rows [begin, end) whose gradients are held together, back through the layers.
  void BackwardBlock(size_t rows, size_t begin, size_t end, size_t first, size_t last, Rows dy, MutableRows dx,
                     Workspace& workspace) const;
  // A range of output rows of one layer's weight gradient.
  struct Piece {
    size_t layer, first, last;
    size_t work;
  };
  std::vector<Piece> GradientPieces(size_t threads) const;
  Block Slice(const Buffer& buffer, size_t rows, size_t first, size_t count) const;

  std::vector<size_t> widths_;
  bool relu_last_;
  const Kernels& kernels_;
};

}  // namespace elasticctr::dense
