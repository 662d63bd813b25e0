#include "dense/bce.h"

#include <algorithm>
#include <cmath>

namespace elasticctr::dense {

double BceGradient(const float* logits, const float* labels, size_t label_stride, const float* weights, size_t n,
                   size_t batch, float* gradient) {
  const float scale = batch == 0 ? 0.0f : 1.0f / static_cast<float>(batch);
  double total = 0.0;
  for (size_t i = 0; i < n; ++i) {
    const float x = logits[i], y = labels[i * label_stride];
    const float e = std::exp(-std::abs(x));
    const float p = (x >= 0.0f ? 1.0f : e) / (1.0f + e);
    total += static_cast<double>(weights[i]) * (std::log1p(e) + std::max(x, 0.0f) - x * y);
    gradient[i] = weights[i] * (p - y) * scale;
  }
  return total * scale;
}

}  // namespace elasticctr::dense
