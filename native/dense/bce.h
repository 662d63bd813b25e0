// Binary cross-entropy of logits and its gradient in one pass: what autograd would spread over a dozen small tensors.
#pragma once

#include <cstddef>

namespace elasticctr::dense {

// gradient[i] = weight[i] * (sigmoid(logit[i]) - label[i]) / n. Returns the mean of weight[i] * loss[i], which is
// log(1 + exp(-|x|)) + max(x, 0) - x * label, finite for every finite logit. Sums are in double, in order.
double BceGradient(const float* logits, const float* labels, size_t label_stride, const float* weights, size_t n,
                   float* gradient);

}  // namespace elasticctr::dense
