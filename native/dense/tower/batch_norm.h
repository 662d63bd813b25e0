// Batch norm after the hidden layers of a tower: the statistics, which are sums over the whole batch, and the
// per-column factors computed from them. The kernels do the elementwise work.
//
// In training each column of a layer's products z is normalised to mean 0 and variance 1 over the batch, and the
// running statistics are updated. In inference, and for a batch of one row (which has no variance), the running
// statistics are used.
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
  std::vector<Layer> layers;  // one for each ReLU, or empty: no batch norm
  bool is_training = false;
  float epsilon = 1e-5f;
  float momentum = 0.1f;  // share of a batch in the running statistics
};

// The results of one layer's norm in one step, padded to whole panels with zeros.
struct NormStep {
  std::vector<float> mean, inverse_deviation;
  std::vector<float> scale, shift;     // normalised: z * scale + shift
  std::vector<float> along, constant;  // with scale and mean, of the gradient: see NormSlopes

  void Resize(size_t width);
  NormSlopes slopes() const { return {mean.data(), scale.data(), along.data(), constant.data()}; }
};

// Takes the batch's statistics from the sums of the moments kernel and updates the running ones. REQUIRES: rows > 1.
void UseBatch(const BatchNorm& norm, size_t layer, size_t width, size_t rows, const float* sums, NormStep& step);
void UseRunning(const BatchNorm& norm, size_t layer, size_t width, NormStep& step);

// Computes the gradients of the norm's own scale and shift, and the remaining slopes, from the sums of norm_sums.
// `is_batch`: the statistics were the batch's own and so depend on every row.
void FinishSlopes(size_t width, size_t rows, const float* sums, bool is_batch, NormStep& step, float* scale_gradient,
                  float* shift_gradient);

}  // namespace elasticctr::dense
