#include "table/optimizer/adagrad.h"

#include <algorithm>
#include <cmath>

#include "table/optimizer/rows.h"

namespace elasticctr {
namespace {

ELASTICCTR_CLONES void StepRows(const StepBlock& block, float rate, float epsilon) {
  ForRows(block,
          [=](float* __restrict w, float* __restrict s, const float* __restrict g, size_t dim) ELASTICCTR_FORMULA {
            ForWeights(dim, [=](size_t i) ELASTICCTR_FORMULA {
              s[i] += g[i] * g[i];
              w[i] -= rate * g[i] / (std::sqrt(s[i]) + epsilon);
            });
          });
}

}  // namespace

size_t Adagrad::StateFloats(size_t dim) const { return dim; }

void Adagrad::Start(const float*, float* state, size_t dim, uint64_t) const {
  std::fill_n(state, dim, settings_.initial_accumulator);
}

void Adagrad::Step(const StepBlock& block) const {
  StepRows(block, settings_.learning_rate * block.rate_scale, settings_.epsilon);
}

}  // namespace elasticctr
