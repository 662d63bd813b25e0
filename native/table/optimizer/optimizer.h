// An optimizer is a stateless object that receives the rows, their state and the gradient.
// It works on one segment of a block of rows at a time, each row once per step.
//
// If an optimizer catches up, a step also applies to the rows it does not touch, but later: a row stores its current
// step in its state, and makes up for missed steps when it is next read or stepped. Such an optimizer remembers the
// learning rates of the last steps, and nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "table/settings.h"

namespace elasticctr {

struct StepBlock {
  size_t count;                   // rows
  uint32_t dim;                   // weights of the segment
  uint32_t weights;               // byte offset of the segment's weights in a row
  uint32_t state;                 // byte offset of the segment's optimizer state in a row
  uint32_t column;                // of the segment in a gradient
  std::byte* const* rows;         // [count]
  const float* const* gradients;  // [count]
  uint64_t step;                  // of the table, from 1
  float rate_scale;               // multiplies the learning rate
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  virtual size_t StateFloats(size_t dim) const = 0;
  // The state of a row whose weights were just initialised, after `step` of the table.
  virtual void Start(const float* weights, float* state, size_t dim, uint64_t step) const = 0;
  // If CatchesUp(), REQUIRES: the rows are at the step before.
  virtual void Step(const StepBlock& block) const = 0;

  virtual bool CatchesUp() const { return false; }
  // Called before the table steps its rows. Exclusive: no other function runs meanwhile.
  virtual void Begin(uint64_t step, float rate_scale);
  // The weights and state of a row at `step` if no missed step touched it. The new arrays may be the old ones; a null
  // state is not written. CatchUp and SetStep REQUIRE: CatchesUp().
  virtual void CatchUp(const float* weights, const float* state, size_t dim, uint64_t step, float* new_weights,
                       float* new_state) const;
  // Records that a row is at this step.
  virtual void SetStep(float* state, size_t dim, uint64_t step) const;
};

std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerSettings& settings);

}  // namespace elasticctr
