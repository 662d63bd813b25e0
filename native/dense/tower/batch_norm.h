// Batch norm after the hidden layers of a tower: the statistics, which are sums over the whole batch, and what they
// turn into by column. The work by element is in the kernels.
//
// In training each column of a layer's products z is brought to mean 0 and variance 1 over the batch, and running
// statistics follow the batch's; otherwise, and for a batch of one row, which has no variance, the running ones are
// used.
#pragma once

#include <cstddef>
#include <vector>

#include "dense/kernels/kernels.h"

namespace elasticctr::dense {

struct BatchNorm {
  // Of one layer, each [width].
  struct Layer {
    const float* scale;
    const float* shift;
    float* running_mean;
    float* running_variance;
  };
  std::vector<Layer> layers;  // one for each ReLU, or none at all: no batch norm
  bool is_training = false;
  float epsilon = 1e-5f;
  float momentum = 0.1f;  // share of a batch in the running statistics
};

// What one layer's norm does in one step; padded to whole panels with zeros.
struct NormStep {
  std::vector<float> mean, inverse_deviation;
  std::vector<float> scale, shift;     // normalised: z * scale + shift
  std::vector<float> along, constant;  // with scale and mean, of the gradient: see NormSlopes

  void Resize(size_t width);
  NormSlopes slopes() const { return {mean.data(), scale.data(), along.data(), constant.data()}; }
};

// Statistics of the batch from the sums the moments kernel took, which the running ones then follow. REQUIRES: rows
// > 1.
void UseBatch(const BatchNorm& norm, size_t layer, size_t width, size_t rows, const float* sums, NormStep& step);
void UseRunning(const BatchNorm& norm, size_t layer, size_t width, NormStep& step);

// From the sums of norm_sums: the gradients of the norm's own scale and shift, and the rest of the slopes. `is_batch`:
// the statistics were the batch's and so depend on every row.
void FinishSlopes(size_t width, size_t rows, const float* sums, bool is_batch, NormStep& step, float* scale_gradient,
                  float* shift_gradient);

}  // namespace elasticctr::dense
