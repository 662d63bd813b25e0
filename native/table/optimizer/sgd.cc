#include "table/optimizer/sgd.h"

#include "table/optimizer/rows.h"

namespace elasticctr {
namespace {

ELASTICCTR_CLONES void StepRows(const StepBlock& block, float rate) {
  ForRows(block, [rate](float* __restrict w, float*, const float* __restrict g, size_t dim) ELASTICCTR_FORMULA {
    ForWeights(dim, [=](size_t i) ELASTICCTR_FORMULA { w[i] -= rate * g[i]; });
  });
}

}  // namespace

size_t Sgd::StateFloats(size_t) const { return 0; }

void Sgd::Start(const float*, float*, size_t, uint64_t) const {}

void Sgd::Step(const StepBlock& block) const { StepRows(block, settings_.learning_rate * block.rate_scale); }

}  // namespace elasticctr
