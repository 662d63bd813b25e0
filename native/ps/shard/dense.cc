#include "ps/shard/dense.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "dense/adam.h"
#include "util/status.h"
#include "util/target.h"

namespace elasticctr::ps {
namespace {

constexpr size_t kPieceFloats = 1 << 16;  // together with its state it fits a core's second cache

// Different after every restart, so that a trainer never mistakes values of another process life for its own.
uint64_t FirstVersion() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()) << 20 | 1;
}

ELASTICCTR_CLONES void StepSgd(float* w, const float* g, size_t count, float rate, float decay) {
  for (size_t i = 0; i < count; ++i) w[i] -= rate * (g[i] + decay * w[i]);
}

ELASTICCTR_CLONES void StepAdagrad(float* w, float* sums, const float* g, size_t count, float rate, float decay,
                                   float epsilon) {
  for (size_t i = 0; i < count; ++i) {
    const float gradient = g[i] + decay * w[i];
    sums[i] += gradient * gradient;
    w[i] -= rate * gradient / (std::sqrt(sums[i]) + epsilon);
  }
}

ELASTICCTR_CLONES void Scale(float* values, size_t count, float factor) {
  for (size_t i = 0; i < count; ++i) values[i] *= factor;
}

double NormOf(std::span<const float> values) {
  double sum = 0.0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

}  // namespace

size_t StateArraysOf(DenseOptimizerKind kind) {
  switch (kind) {
    case DenseOptimizerKind::kAdam:
    case DenseOptimizerKind::kAdamW: return 2;
    case DenseOptimizerKind::kAdagrad: return 1;
    case DenseOptimizerKind::kSgd: break;
  }
  return 0;
}

DensePart::DensePart(const DenseOptimizerSettings& settings, size_t floats)
    : settings_(settings), values_(floats), state_(StateArraysOf(settings.kind), std::vector<float>(floats)) {}

size_t DensePart::state_arrays() const { return state_.size(); }

std::span<const float> DensePart::state(size_t array) const { return state_[array]; }

void DensePart::Set(std::span<const float> values) {
  std::copy(values.begin(), values.end(), values_.begin());
  Touch();
}

void DensePart::Touch() { version_ = version_ == 0 ? FirstVersion() : version_ + 1; }

void DensePart::Step(std::span<const float> gradient, float rate_scale) {
  ++steps_;
  StepRange(0, gradient, rate_scale);
}

void DensePart::StepPieces(const std::function<void(size_t first, std::span<float> piece)>& fill, float rate_scale) {
  ++steps_;
  const size_t whole = values_.size(), most = settings_.clip_norm > 0.0f ? whole : std::min(whole, kPieceFloats);
  piece_.resize(most);
  for (size_t first = 0; first < whole; first += most) {
    const std::span<float> piece(piece_.data(), std::min(most, whole - first));
    fill(first, piece);
    Apply(first, piece, rate_scale);
  }
  Touch();
}

void DensePart::StepRange(size_t first, std::span<const float> gradient, float rate_scale) {
  Apply(first, gradient, rate_scale);
  Touch();
}

// torch.nn.utils.clip_grad_norm_ and the optimizers of torch.optim, in their order of operations.
void DensePart::Apply(size_t first, std::span<const float> gradient, float rate_scale) {
  const size_t count = gradient.size();
  float* const w = values_.data() + first;
  const float* g = gradient.data();
  if (settings_.clip_norm > 0.0f) {
    const double factor = settings_.clip_norm / (NormOf(gradient) + 1e-6);
    if (factor < 1.0) {
      clipped_.assign(gradient.begin(), gradient.end());
      Scale(clipped_.data(), count, static_cast<float>(factor));
      g = clipped_.data();
    }
  }
  const double rate = static_cast<double>(settings_.learning_rate) * rate_scale;
  const auto step = static_cast<float>(rate);
  float decay = settings_.weight_decay;
  switch (settings_.kind) {
    case DenseOptimizerKind::kSgd: StepSgd(w, g, count, step, decay); break;
    case DenseOptimizerKind::kAdagrad:
      StepAdagrad(w, state_[0].data() + first, g, count, step, decay, settings_.epsilon);
      break;
    case DenseOptimizerKind::kAdamW:
      Scale(w, count, static_cast<float>(1.0 - rate * decay));
      decay = 0.0f;
      [[fallthrough]];
    case DenseOptimizerKind::kAdam: {
      auto before = static_cast<float>(steps_ - 1);
      dense::AdamStep({rate, settings_.beta1, settings_.beta2, settings_.epsilon, decay},
                      {{w, g, state_[0].data() + first, state_[1].data() + first, &before, count}});
      break;
    }
  }
}

void DensePart::Add(std::span<const float> delta) { AddRange(0, delta); }

void DensePart::AddRange(size_t first, std::span<const float> delta) {
  for (size_t i = 0; i < delta.size(); ++i) values_[first + i] += delta[i];
  Touch();
}

void DensePart::Restore(std::span<const float> values, const std::vector<std::vector<float>>& state, uint64_t steps) {
  if (values.size() != values_.size() || state.size() != state_.size()) {
    throw Error(Code::kFailedPrecondition,
                "the dense part has another size or optimizer than the one it is loaded from");
  }
  for (const auto& array : state) {
    if (array.size() != values_.size()) throw Error(Code::kInternal, "optimizer state of another size");
  }
  std::copy(values.begin(), values.end(), values_.begin());
  state_ = state;
  steps_ = steps;
  version_ = FirstVersion();
}

void DensePart::Reset() {
  std::fill(values_.begin(), values_.end(), 0.0f);
  for (auto& array : state_) std::fill(array.begin(), array.end(), 0.0f);
  steps_ = version_ = 0;
}

}  // namespace elasticctr::ps
