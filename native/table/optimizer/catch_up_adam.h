// Adam that moves every row on every step, as torch.optim.Adam does with a dense embedding. On a step that does not
// touch it a row has the gradient l2 * w, its moments shrink, and the row moves by them; l1 and the bound also apply.
// As in torch, ε is added to the corrected √v, so it matters where gradients are no larger than it.
//
// A row makes up for the steps it missed one by one, by the same formula and with the rates of those steps. If it
// missed more than `catch_up`, it makes up for that many, at the rates of the last ones; without l1 and l2, for no more
// than momentum lasts. For the remaining steps its moments shrink by the closed form of steps without a gradient, and
// its weights stay.
// State: all m, all v, then the step of the row: its low 32 bits, as raw bits.
#pragma once

#include <vector>

#include "table/optimizer/adam.h"

namespace elasticctr {

// Of one step.
struct CatchUpRates {
  float step;  // of Adam's formula, as is epsilon
  float epsilon;
  float shrink;  // of l1
};

class CatchUpAdam : public Adam {
 public:
  explicit CatchUpAdam(const OptimizerSettings& settings);

  size_t StateFloats(size_t dim) const override;
  void Start(const float* weights, float* state, size_t dim, uint64_t step) const override;
  void Step(const StepBlock& block) const override;

  bool CatchesUp() const override { return true; }
  void Begin(uint64_t step, float rate_scale) override;
  void CatchUp(const float* weights, const float* state, size_t dim, uint64_t step, float* new_weights,
               float* new_state) const override;
  void SetStep(float* state, size_t dim, uint64_t step) const override;

 private:
  float EpsilonOf(uint64_t step) const;

  uint32_t most_;                    // steps made up for one by one
  std::vector<CatchUpRates> rates_;  // of the last steps, each at its number modulo their count, a power of two
};

}  // namespace elasticctr
