// A tower: Linear layers with ReLU between them, optionally with batch norm before and dropout after each ReLU, trained
// on the CPU faster than a general tensor library can.
//
// A step packs the weights once, then takes blocks of rows through all layers while they are in cache: forward, later
// backward to the gradient of the input. Weight gradients follow, one task per range of output rows, each summing over
// the batch in order. Every number is therefore computed in the same order with any number of threads.
// Batch norm has to see the whole batch after each layer, so blocks then pass through one layer at a time.
//
// Threads: one tower may be used from several threads as long as each call has its own Workspace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "dense/buffer.h"
#include "dense/kernels/kernels.h"
#include "dense/tower/batch_norm.h"
#include "dense/tower/blocks.h"

namespace elasticctr::dense {

// The state a forward pass leaves for its backward pass. One tower can reuse it for any number of steps.
struct Workspace {
  size_t rows = 0;                   // of the forward pass that filled it; 0 when it holds none
  std::vector<Buffer> activations;   // what each layer reads, then the output where it has a ReLU
  std::vector<Buffer> gradients[2];  // of what each layer writes, for some rows at a time, in turn
  std::vector<Buffer> packed;        // weights, and after them the padded biases
  float kept_scale = 1.0f;           // of values that dropout kept

  bool has_norms = false;        // whether what follows was used
  bool is_batch = false;         // whether the statistics are the batch's own
  std::vector<Buffer> products;  // of each layer with a norm, before it
  std::vector<NormStep> norms;   // one for each of them
  Buffer norm_gradients[2];      // of what norms write, of two layers in turn
  std::vector<float> sums;       // of one layer, by kSumRows rows
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

// The settings of batch norm and dropout around the ReLUs of one step.
struct Hidden {
  BatchNorm norm;
  double dropout = 0.0;  // share of values set to zero
  uint64_t seed = 0;     // of the dropout, different for each step
};

// Where Backward writes; each array has the shape of the tensor whose gradient it is.
struct TowerGradients {
  MutableRows dx;  // may be null
  float* const* weights = nullptr;
  float* const* biases = nullptr;
  float* const* norm_scales = nullptr;  // one for each norm
  float* const* norm_shifts = nullptr;
};

class Tower {
 public:
  // widths: input, then each layer's output. REQUIRES: at least two, none 0.
  Tower(std::vector<size_t> widths, bool relu_last, const Kernels& kernels);

  const std::vector<size_t>& widths() const { return widths_; }
  bool relu_last() const { return relu_last_; }
  size_t layers() const { return widths_.size() - 1; }
  size_t relus() const { return layers() - (relu_last_ ? 0 : 1); }
  const Kernels& kernels() const { return kernels_; }

  // weights[l]: [widths[l + 1], widths[l]] row-major, biases[l]: [widths[l + 1]]. With `keep` the workspace can be
  // passed to Backward afterwards. `finish(first, count)`, if given, is called for every range of rows as soon as y has
  // them, by the thread that computed them. Ranges start at multiples of kBlockUnit and all but the last are whole
  // multiples of it.
  using Finish = std::function<void(size_t, size_t)>;
  void Forward(Rows x, size_t rows, const float* const* weights, const float* const* biases, const Hidden& hidden,
               MutableRows y, Workspace& workspace, bool keep, const Finish& finish = {}) const;

  // Gradients of the workspace's last Forward, whose weights must not have changed since. If a norm with the batch's
  // statistics cancels a bias, the gradient of that bias is exactly 0. Releases the workspace's Forward. REQUIRES:
  // workspace.rows > 0.
  void Backward(Rows dy, const float* const* weights, const TowerGradients& gradients, Workspace& workspace) const;

 private:
  // Packs for Forward or, without biases, for Backward.
  void Pack(const float* const* weights, const float* const* biases, Workspace& workspace) const;
  size_t PackedWeightBytes(size_t layer) const;
  // Padded. Valid only between Pack for Forward and Pack for Backward.
  float* PackedBias(const Workspace& workspace, size_t layer) const;

  // Makes room for a Forward and prepares norms with fixed statistics.
  void Prepare(size_t rows, const Hidden& hidden, bool keep, Workspace& workspace) const;

  // A range of output rows of one layer's weight gradient.
  struct Piece {
    size_t layer, first, last;
    size_t work;
  };
  std::vector<Piece> GradientPieces(Stage stage, size_t threads) const;

  struct ForwardPass;
  struct BackwardPass;

  std::vector<size_t> widths_;
  bool relu_last_;
  const Kernels& kernels_;
};

}  // namespace elasticctr::dense
