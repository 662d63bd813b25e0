#include "table/optimizer/ftrl.h"

#include <algorithm>
#include <cmath>

#include "table/optimizer/rows.h"

namespace elasticctr {
namespace {

constexpr float kTiny = 1e-30f;

ELASTICCTR_CLONES void StepRows(const StepBlock& block, float alpha, float beta, float l1, float l2) {
  const float inverse = 1.0f / alpha;
  ForRows(block,
          [=](float* __restrict w, float* __restrict state, const float* __restrict g, size_t dim) ELASTICCTR_FORMULA {
            float* __restrict z = state;
            float* __restrict n = state + dim;
            ForWeights(dim, [=](size_t i) ELASTICCTR_FORMULA {
              // √(n+g²) - √n as g²/(√(n+g²) + √n), which does not cancel.
              const float square = g[i] * g[i];
              const float before = std::sqrt(n[i]);
              n[i] += square;
              const float after = std::sqrt(n[i]);
              z[i] += g[i] - square / std::max(after + before, kTiny) * inverse * w[i];
              const float shrunk = std::max(std::fabs(z[i]) - l1, 0.0f);
              w[i] = -std::copysign(shrunk, z[i]) / ((beta + after) * inverse + l2);
            });
          });
}

}  // namespace

size_t Ftrl::StateFloats(size_t dim) const { return 2 * dim; }

void Ftrl::Start(const float* weights, float* state, size_t dim, uint64_t) const {
  const float n = settings_.initial_accumulator;
  const float denominator = (settings_.beta + std::sqrt(n)) / settings_.learning_rate + settings_.l2;
  for (size_t i = 0; i < dim; ++i) {
    const float w = weights[i];
    state[i] = w == 0.0f ? 0.0f : -(w * denominator) - std::copysign(settings_.l1, w);
  }
  std::fill_n(state + dim, dim, n);
}

void Ftrl::Step(const StepBlock& block) const {
  StepRows(block, settings_.learning_rate * block.rate_scale, settings_.beta, settings_.l1, settings_.l2);
}

}  // namespace elasticctr
