// A training step of a tower with one output, up to its gradients: forward, a linear layer beside it, binary
// cross-entropy, backward. What autograd does in a dozen calls between Python and small tensors, in one.
//
// Results do not depend on the number of threads.
#pragma once

#include <cstddef>

#include "dense/tower/tower.h"

namespace elasticctr::dense {

// A linear layer over columns [first, first + count) of the tower's input, added to its output. The gradient of those
// columns is the tower's alone: they are data.
struct Wide {
  size_t first = 0;
  size_t count = 0;                // 0: no such layer
  const float* weights = nullptr;  // [count]
  const float* bias = nullptr;     // [1]
  float* weight_gradients = nullptr;
  float* bias_gradient = nullptr;
};

struct Samples {
  const float* labels = nullptr;
  size_t label_stride = 1;
  const float* weights = nullptr;
};

// Writes logits [rows] and all gradients, and returns the loss: see bce.h. REQUIRES: the tower's last width is 1, it
// does not end in a ReLU.
double TowerStep(const Tower& tower, Rows x, size_t rows, const float* const* weights, const float* const* biases,
                 const Hidden& hidden, const Wide& wide, const Samples& samples, float* logits,
                 const TowerGradients& gradients, Workspace& workspace);

}  // namespace elasticctr::dense
