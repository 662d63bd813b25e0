// Self-attention between the fields of a sample, with a residual (AutoInt). Each head computes relu(softmax(scale Q Kᵀ)
// V + R) from projections the caller has computed.
//
// `projected` is [batch, fields, 4 * heads * head_dim]: queries, keys, values and the residual of all heads, in this
// order. Results and their gradients are [batch, fields, heads * head_dim].
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
  // Turns the gradient of the result into that of the projections. Recomputes the attention: that costs less than
  // reading it from memory.
  void Backward(const float* projected, const float* result, const float* gradient, size_t batch,
                float* to_projected) const;
};

}  // namespace elasticctr::dense
