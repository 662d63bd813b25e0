// FTRL-proximal (McMahan et al. 2013):
//   σ = (√(n+g²) - √n)/α; z += g - σw; n += g²
//   w = 0 where |z| <= λ₁, else -(z - sign(z)λ₁) / ((β + √n)/α + λ₂)
// State: all z, then all n. z starts where the formula gives back the initial weight.
#pragma once

#include "table/optimizer/optimizer.h"

namespace elasticctr {

class Ftrl : public Optimizer {
 public:
  explicit Ftrl(const OptimizerSettings& settings) : settings_(settings) {}

  size_t StateFloats(size_t dim) const override;
  void Start(const float* weights, float* state, size_t dim, uint64_t step) const override;
  void Step(const StepBlock& block) const override;

 private:
  OptimizerSettings settings_;
};

}  // namespace elasticctr
