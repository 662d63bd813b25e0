#include "table/optimizer/catch_up_adam.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "util/target.h"

namespace elasticctr {
namespace {

constexpr size_t kLanes = 16;             // weights processed together in registers
constexpr double kMomentumIsOver = 1e-9;  // the remaining share of momentum that no longer moves a weight

struct Missed {
  uint32_t first, count;  // steps to make up for one by one
  const CatchUpRates* rates;
  uint32_t mask;       // of a step's number: where its rates are
  float left1, left2;  // remaining share of the moments after the skipped steps
  float l2, rest1, rest2, bound;
  bool is_free;
};

struct Row {
  const float* weights;
  const float* moments;  // m, then v
  float* new_weights;
  float* new_moments;  // may be null
};

// kIsFree: neither l1 nor a bound. The operations form one dependency chain, so each omitted one saves time.
template <bool kIsFree>
ELASTICCTR_INLINE void MakeUpLanes(const Row& row, size_t dim, const Missed& missed) {
  const float l2 = missed.l2, rest1 = missed.rest1, rest2 = missed.rest2, bound = missed.bound;
  for (size_t begin = 0; begin < dim; begin += kLanes) {
    const size_t width = std::min(kLanes, dim - begin);
    float w[kLanes] = {}, m[kLanes] = {}, v[kLanes] = {};
    std::memcpy(w, row.weights + begin, width * sizeof(float));
    std::memcpy(m, row.moments + begin, width * sizeof(float));
    std::memcpy(v, row.moments + dim + begin, width * sizeof(float));
    for (uint32_t i = 0; i < missed.count; ++i) {
      const auto [rate, epsilon, shrink] = missed.rates[(missed.first + i) & missed.mask];
      for (size_t k = 0; k < kLanes; ++k) {
        const float g = l2 * w[k];
        m[k] += rest1 * (g - m[k]);
        v[k] += rest2 * (g * g - v[k]);
        w[k] -= rate * m[k] / (std::sqrt(v[k]) + epsilon);
        if (kIsFree) continue;
        w[k] -= std::min(std::max(w[k], -shrink), shrink);
        w[k] = std::min(std::max(w[k], -bound), bound);
      }
    }
    std::memcpy(row.new_weights + begin, w, width * sizeof(float));
    if (row.new_moments == nullptr) continue;
    for (size_t k = 0; k < width; ++k) {
      row.new_moments[begin + k] = m[k] * missed.left1;
      row.new_moments[dim + begin + k] = v[k] * missed.left2;
    }
  }
}

ELASTICCTR_CLONES void MakeUp(const Row& row, size_t dim, const Missed& missed) {
  if (missed.is_free) {
    MakeUpLanes<true>(row, dim, missed);
  } else {
    MakeUpLanes<false>(row, dim, missed);
  }
}

// The number of steps after which the mean gradient is negligible.
uint32_t MomentumLasts(float beta1) {
  return beta1 == 0.0f ? 1
                       : static_cast<uint32_t>(std::min(1e9, std::ceil(std::log(kMomentumIsOver) / std::log(beta1))));
}

uint32_t StepOf(const float* state, size_t dim) {
  uint32_t step;
  std::memcpy(&step, state + 2 * dim, sizeof step);
  return step;
}

}  // namespace

CatchUpAdam::CatchUpAdam(const OptimizerSettings& settings)
    : Adam(settings), most_(settings.catch_up), rates_(std::bit_ceil(settings.catch_up)) {
  if (settings.l1 == 0.0f && settings.l2 == 0.0f) most_ = std::min(most_, MomentumLasts(settings.beta1));
}

size_t CatchUpAdam::StateFloats(size_t dim) const { return Adam::StateFloats(dim) + 1; }

void CatchUpAdam::Start(const float* weights, float* state, size_t dim, uint64_t step) const {
  Adam::Start(weights, state, dim, step);
  SetStep(state, dim, step);
}

void CatchUpAdam::SetStep(float* state, size_t dim, uint64_t step) const {
  const auto low = static_cast<uint32_t>(step);
  std::memcpy(state + 2 * dim, &low, sizeof low);
}

void CatchUpAdam::Begin(uint64_t step, float rate_scale) {
  const float shrink = settings_.learning_rate * rate_scale * settings_.l1;
  rates_[step & (rates_.size() - 1)] = {RateOf(step, rate_scale), EpsilonOf(step), shrink};
}

// m̂/(√v̂ + ε) is √(1-β₂ᵗ)/(1-β₁ᵗ) * m/(√v + √(1-β₂ᵗ)ε).
float CatchUpAdam::EpsilonOf(uint64_t step) const {
  return static_cast<float>(std::sqrt(1.0 - Power(settings_.beta2, step)) * settings_.epsilon);
}

void CatchUpAdam::Step(const StepBlock& block) const {
  Adam::Step(block, EpsilonOf(block.step));
  for (size_t i = 0; i < block.count; ++i) {
    SetStep(reinterpret_cast<float*>(block.rows[i] + block.state), block.dim, block.step);
  }
}

void CatchUpAdam::CatchUp(const float* weights, const float* state, size_t dim, uint64_t step, float* new_weights,
                          float* new_state) const {
  const auto last = static_cast<uint32_t>(step);
  const uint32_t behind = last - StepOf(state, dim);
  if (behind == 0) {
    if (new_weights != weights) std::memcpy(new_weights, weights, dim * sizeof(float));
    return;
  }
  const auto remembered = static_cast<uint32_t>(rates_.size());
  Missed missed{};
  missed.first = last - std::min(behind, remembered) + 1;
  missed.count = std::min(behind, most_);
  missed.rates = rates_.data();
  missed.mask = remembered - 1;
  missed.left1 = static_cast<float>(Power(settings_.beta1, behind - missed.count));
  missed.left2 = static_cast<float>(Power(settings_.beta2, behind - missed.count));
  missed.l2 = settings_.l2;
  missed.rest1 = 1.0f - settings_.beta1;
  missed.rest2 = 1.0f - settings_.beta2;
  missed.bound = settings_.weight_bound == 0.0f ? std::numeric_limits<float>::infinity() : settings_.weight_bound;
  missed.is_free = settings_.weight_bound == 0.0f && settings_.l1 == 0.0f;
  MakeUp({weights, state, new_weights, new_state}, dim, missed);
  if (new_state != nullptr) SetStep(new_state, dim, step);
}

}  // namespace elasticctr
