// Lazy Adam as torch.optim.SparseAdam: moments of touched rows only, bias correction by the table's step.
//   m += (1-β₁)(g-m); v += (1-β₂)(g²-v); w -= rate * √(1-β₂ᵗ)/(1-β₁ᵗ) * m / (√v + ε)
// State: all m, then all v.
#pragma once

#include "table/optimizer/optimizer.h"

namespace elasticctr {

// By squaring: unlike std::pow the same on every machine.
double Power(double base, uint64_t exponent);

class Adam : public Optimizer {
 public:
  explicit Adam(const OptimizerSettings& settings) : settings_(settings) {}

  size_t StateFloats(size_t dim) const override;
  void Start(const float* weights, float* state, size_t dim, uint64_t step) const override;
  void Step(const StepBlock& block) const override;

 protected:
  // The step size with the correction of both moments' bias.
  float RateOf(uint64_t step, float rate_scale) const;
  void Step(const StepBlock& block, float epsilon) const;

  const OptimizerSettings settings_;
};

}  // namespace elasticctr
