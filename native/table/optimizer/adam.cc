#include "table/optimizer/adam.h"

#include <algorithm>
#include <cmath>

#include "table/optimizer/rows.h"

namespace elasticctr {
namespace {

ELASTICCTR_CLONES void StepRows(const StepBlock& block, float rate, float epsilon, float beta1, float beta2) {
  const float rest1 = 1.0f - beta1, rest2 = 1.0f - beta2;
  ForRows(block,
          [=](float* __restrict w, float* __restrict state, const float* __restrict g, size_t dim) ELASTICCTR_FORMULA {
            float* __restrict m = state;
            float* __restrict v = state + dim;
            ForWeights(dim, [=](size_t i) ELASTICCTR_FORMULA {
              m[i] += rest1 * (g[i] - m[i]);
              v[i] += rest2 * (g[i] * g[i] - v[i]);
              w[i] -= rate * m[i] / (std::sqrt(v[i]) + epsilon);
            });
          });
}

}  // namespace

double Power(double base, uint64_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent >>= 1, base *= base) {
    if (exponent & 1) result *= base;
  }
  return result;
}

size_t Adam::StateFloats(size_t dim) const { return 2 * dim; }

void Adam::Start(const float*, float* state, size_t dim, uint64_t) const { std::fill_n(state, 2 * dim, 0.0f); }

float Adam::RateOf(uint64_t step, float rate_scale) const {
  const double correction = std::sqrt(1.0 - Power(settings_.beta2, step)) / (1.0 - Power(settings_.beta1, step));
  return static_cast<float>(static_cast<double>(settings_.learning_rate) * rate_scale * correction);
}

void Adam::Step(const StepBlock& block) const { Step(block, settings_.epsilon); }

void Adam::Step(const StepBlock& block, float epsilon) const {
  StepRows(block, RateOf(block.step, block.rate_scale), epsilon, settings_.beta1, settings_.beta2);
}

}  // namespace elasticctr
