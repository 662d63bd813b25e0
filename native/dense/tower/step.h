// A training step of a tower with one output, up to its gradients: forward, an optional linear layer on the input,
// binary cross-entropy, backward. One call replaces a dozen autograd calls between Python and small tensors.
//
// Results do not depend on the number of threads.
#pragma once

#include <cstddef>

#include "dense/tower/tower.h"

namespace elasticctr::dense {

// A linear layer over columns [first, first + count) of the tower's input, added to its output. It adds nothing to the
// gradient of those columns: they are data.
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

// Writes logits [rows] and all gradients, and returns the loss: see bce.h. REQUIRES: the tower's last width is 1 and it
// does not end in a ReLU.
double TowerStep(const Tower& tower, Rows x, size_t rows, const float* const* weights, const float* const* biases,
                 const Hidden& hidden, const Wide& wide, const Samples& samples, float* logits,
                 const TowerGradients& gradients, Workspace& workspace);

}  // namespace elasticctr::dense
