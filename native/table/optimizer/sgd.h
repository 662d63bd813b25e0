// Plain gradient descent: w -= rate * g. No state.
#pragma once

#include "table/optimizer/optimizer.h"

namespace elasticctr {

class Sgd : public Optimizer {
 public:
  explicit Sgd(const OptimizerSettings& settings) : settings_(settings) {}

  size_t StateFloats(size_t dim) const override;
  void Start(const float* weights, float* state, size_t dim, uint64_t step) const override;
  void Step(const StepBlock& block) const override;

 private:
  OptimizerSettings settings_;
};

}  // namespace elasticctr
