// AUC of whole arrays by sorting, for final evaluation and windows.
#pragma once

#include <cstddef>
#include <cstdint>

namespace elasticctr::metric {

// Area under the ROC curve, ties counting half; NaN with only one class. `weights` may be null. Scores may be logits or
// probabilities. Exact up to the rounding of weights to multiples of 2^-20: pairs are counted in integers, so the order
// of samples does not affect even the last bit. Samples with a NaN score or a bad label or weight are left out;
// *invalid receives their number.
double ExactAuc(const float* scores, const float* labels, const float* weights, size_t n, uint64_t* invalid);

}  // namespace elasticctr::metric
