#include "table/optimizer/rowwise_adagrad.h"

#include <cmath>

#include "table/optimizer/rows.h"

namespace elasticctr {
namespace {

ELASTICCTR_CLONES void StepRows(const StepBlock& block, float rate, float epsilon) {
  ForRows(block,
          [=](float* __restrict w, float* __restrict s, const float* __restrict g, size_t dim) ELASTICCTR_FORMULA {
            float squares = 0.0f;
            for (size_t i = 0; i < dim; ++i) squares += g[i] * g[i];
            s[0] += squares / static_cast<float>(dim);
            const float scaled = rate / (std::sqrt(s[0]) + epsilon);
            ForWeights(dim, [=](size_t i) ELASTICCTR_FORMULA { w[i] -= scaled * g[i]; });
          });
}

}  // namespace

size_t RowwiseAdagrad::StateFloats(size_t) const { return 1; }

void RowwiseAdagrad::Start(const float*, float* state, size_t, uint64_t) const {
  state[0] = settings_.initial_accumulator;
}

void RowwiseAdagrad::Step(const StepBlock& block) const {
  StepRows(block, settings_.learning_rate * block.rate_scale, settings_.epsilon);
}

}  // namespace elasticctr
