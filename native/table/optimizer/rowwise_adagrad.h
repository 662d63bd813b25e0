// Adagrad with one accumulator per row: s += mean(g²); w -= rate * g / (√s + ε). State: s.
#pragma once

#include "table/optimizer/optimizer.h"

namespace elasticctr {

class RowwiseAdagrad : public Optimizer {
 public:
  explicit RowwiseAdagrad(const OptimizerSettings& settings) : settings_(settings) {}

  size_t StateFloats(size_t dim) const override;
  void Start(const float* weights, float* state, size_t dim, uint64_t step) const override;
  void Step(const StepBlock& block) const override;

 private:
  OptimizerSettings settings_;
};

}  // namespace elasticctr
