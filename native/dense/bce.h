// Binary cross-entropy of logits and its gradient in one pass. Autograd would use a dozen small tensors.
#pragma once

#include <cstddef>

namespace elasticctr::dense {

// For n samples of a batch: gradient[i] = weight[i] * (sigmoid(logit[i]) - label[i]) / batch. Returns the sum of
// weight[i] * loss[i] / batch, where loss is log(1 + exp(-|x|)) + max(x, 0) - x * label, finite for every finite logit.
// Sums are taken in double, in order.
double BceGradient(const float* logits, const float* labels, size_t label_stride, const float* weights, size_t n,
                   size_t batch, float* gradient);

}  // namespace elasticctr::dense
