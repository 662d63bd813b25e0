// One step of Adam over any number of tensors: the formula of torch.optim.Adam, one pass over memory, all threads.
#pragma once

#include <cstddef>
#include <vector>

namespace elasticctr::dense {

struct AdamSettings {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;  // L2: added to the gradient
};

// A tensor of `size` floats and its state. `step` counts the steps taken so far and is advanced by one.
struct AdamTensor {
  float* weights;
  const float* gradient;
  float* mean;    // of gradients
  float* square;  // mean of their squares
  float* step;
  size_t size;
};

// Results depend on neither the number of threads nor the instruction set: every operation is rounded separately. On
// x86, subnormal numbers (below 1.2e-38) count as zero.
void AdamStep(const AdamSettings& settings, const std::vector<AdamTensor>& tensors);

// What AdamStep passes to the kernels of an instruction set: a range of one tensor, with precomputed factors.
struct AdamSpan {
  float* weights;
  const float* gradient;
  float* mean;
  float* square;
  size_t size;
  float one_minus_beta1, beta2, one_minus_beta2, epsilon, weight_decay;
  float step_size;        // learning rate / bias correction of the mean
  float root_correction;  // square root of the bias correction of the squares
};
using AdamFunction = void (*)(const AdamSpan&);

}  // namespace elasticctr::dense
