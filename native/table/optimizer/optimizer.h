// An optimizer is a stateless object that is told: here are the rows, there is your state, this is the gradient.
// It works on one segment of a block of rows at a time, each row once per step.
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
  // The state of a row whose weights were just initialised.
  virtual void Start(const float* weights, float* state, size_t dim) const = 0;
  virtual void Step(const StepBlock& block) const = 0;
};

std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerSettings& settings);

}  // namespace elasticctr
