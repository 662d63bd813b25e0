// Lazy Adam as torch.optim.SparseAdam: moments of touched rows only, bias correction by the table's step.
//   m += (1-β₁)(g-m); v += (1-β₂)(g²-v); w -= rate * √(1-β₂ᵗ)/(1-β₁ᵗ) * m / (√v + ε)
// State: all m, then all v.
#pragma once

#include "table/optimizer/optimizer.h"

namespace elasticctr {

class Adam : public Optimizer {
 public:
  explicit Adam(const OptimizerSettings& settings) : settings_(settings) {}

  size_t StateFloats(size_t dim) const override;
  void Start(const float* weights, float* state, size_t dim) const override;
  void Step(const StepBlock& block) const override;

 private:
  OptimizerSettings settings_;
};

}  // namespace elasticctr
