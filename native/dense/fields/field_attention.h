// Fields of a sample that attend to each other, with a residual (AutoInt): of each head relu(softmax(scale Q Kᵀ) V +
// R), from projections that were made before.
//
// `projected` is [batch, fields, 4 * heads * head_dim]: queries, keys, values and the residual of all heads, in this
// order; results and their gradients are [batch, fields, heads * head_dim].
#pragma once

#include <cstddef>

namespace elasticctr::dense {

struct FieldAttention {
  size_t fields;
  size_t heads;
  size_t head_dim;
  float scale;  // of scores

  size_t width() const { return heads * head_dim; }

  void Forward(const float* projected, size_t batch, float* result) const;
  // From the gradient of the result to that of the projections. Attention is computed again: that costs less than
  // reading it from memory.
  void Backward(const float* projected, const float* result, const float* gradient, size_t batch,
                float* to_projected) const;
};

}  // namespace elasticctr::dense
