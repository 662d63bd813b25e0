// A part of the dense vector with its optimizer: SGD, Adam, AdamW and Adagrad with torch's formulas, one set of options
// for all floats. Not synchronised: the shard's lock protects it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace elasticctr::ps {

enum class DenseOptimizerKind : uint8_t { kSgd = 0, kAdam = 1, kAdamW = 2, kAdagrad = 3 };

// The number of state arrays, each with one float per value.
size_t StateArraysOf(DenseOptimizerKind kind);

struct DenseOptimizerSettings {
  DenseOptimizerKind kind = DenseOptimizerKind::kAdam;
  float learning_rate = 1e-3f;
  float weight_decay = 0.0f;
  float clip_norm = 0.0f;  // 0: none. REQUIRES: the part is the whole vector
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;  // Adagrad: 1e-10
};

class DensePart {
 public:
  DensePart(const DenseOptimizerSettings& settings, size_t floats);

  size_t size() const { return values_.size(); }
  bool has_values() const { return version_ != 0; }
  // Changes with every update; every process life uses new numbers. 0: no values yet.
  uint64_t version() const { return version_; }
  std::span<const float> values() const { return values_; }
  uint64_t steps() const { return steps_; }

  void Set(std::span<const float> values);
  void Step(std::span<const float> gradient, float rate_scale);
  // As Step, with a gradient that comes in pieces: `fill` writes the floats from `first` on.
  void StepPieces(const std::function<void(size_t first, std::span<float> piece)>& fill, float rate_scale);
  void Add(std::span<const float> delta);
  // Updates some of the floats, from `first` on, within the step that CountStep or Step counted last.
  void CountStep() { ++steps_; }
  void StepRange(size_t first, std::span<const float> gradient, float rate_scale);
  void AddRange(size_t first, std::span<const float> delta);

  // Optimizer state: `state_floats()` per value, one array after the other, in the order of dense.bin
  // (docs/formats/checkpoint.md): Adam: first moments, second moments; Adagrad: sums.
  size_t state_arrays() const;
  std::span<const float> state(size_t array) const;
  void Restore(std::span<const float> values, const std::vector<std::vector<float>>& state, uint64_t steps);
  void Reset();  // no values, step 0

 private:
  void Apply(size_t first, std::span<const float> gradient, float rate_scale);
  void Touch();

  DenseOptimizerSettings settings_;
  std::vector<float> values_;
  std::vector<std::vector<float>> state_;
  std::vector<float> clipped_, piece_;  // scratch
  uint64_t steps_ = 0;
  uint64_t version_ = 0;
};

}  // namespace elasticctr::ps
