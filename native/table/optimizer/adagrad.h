// Adagrad as torch.optim.Adagrad: s += g²; w -= rate * g / (√s + ε). State: s, one per weight.
#pragma once

#include "table/optimizer/optimizer.h"

namespace elasticctr {

class Adagrad : public Optimizer {
 public:
  explicit Adagrad(const OptimizerSettings& settings) : settings_(settings) {}

  size_t StateFloats(size_t dim) const override;
  void Start(const float* weights, float* state, size_t dim, uint64_t step) const override;
  void Step(const StepBlock& block) const override;

 private:
  OptimizerSettings settings_;
};

}  // namespace elasticctr
