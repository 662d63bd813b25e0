// Learned mixes of the products of every row of one matrix with every row of another, column by column (a layer of
// xDeepFM's compressed interaction network): z[h, n] = Σ_ij w[h, i * right + j] a[i, n] b[j, n].
//
// Matrices are row-major, `columns` floats per row. The products are never stored.
#pragma once

#include <cstddef>

namespace elasticctr::dense {

struct ProductMix {
  size_t left;   // rows of a
  size_t right;  // rows of b
  size_t out;    // rows of z

  void Forward(const float* a, const float* b, const float* w, size_t columns, float* z) const;
  // Computes gradients from that of z. The sums over columns do not depend on the number of threads.
  void Backward(const float* a, const float* b, const float* w, const float* gradient, size_t columns, float* to_a,
                float* to_b, float* to_w) const;
};

}  // namespace elasticctr::dense
