// Comparisons become selects only if the compiler need not preserve floating-point exception flags; values are the same
// either way.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif

#include "metric/loss_kernel.h"

#include <bit>
#include <cmath>
#include <limits>

#include "metric/score_bucket.h"
#include "util/target.h"

namespace elasticctr::metric {
namespace {

// Adding this to |v| < 2^51 rounds v to an integer, which is then in the low bits.
constexpr double kRound = 0x1.8p52;

// e^-a for 0 <= a <= kMaxLogit, to about 1e-11 relative.
ELASTICCTR_INLINE double ExpNegative(double a) {
  const double shifted = a * -1.4426950408889634 + kRound;
  const double k = shifted - kRound;
  const double r = (-a - k * 0x1.62e42fefa0000p-1) - k * 0x1.cf79abc9e3b3ap-40;  // ln 2 in two parts
  double p = 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  const uint64_t exponent = (std::bit_cast<uint64_t>(shifted) + 1023) << 52;
  return p * std::bit_cast<double>(exponent);
}

struct Softplus {
  double log1p;    // ln(1 + e), to about 1e-11 relative
  double inverse;  // 1 / (1 + e)
};

// For 0 <= e <= 1. ln is 2 atanh(s); beyond sqrt(2), ln sqrt(2) is split off. One division gives both.
ELASTICCTR_INLINE Softplus SoftplusOf(double e) {
  const bool is_large = e > 0.41421356237309503;
  const double one = 1.0 + e;
  const double u = is_large ? one * 0.70710678118654752 - 1.0 : e;
  const double both = 1.0 / ((u + 2.0) * one);
  const double s = u * one * both;
  const double z = s * s;
  double p = 1.0 / 13;
  p = p * z + 1.0 / 11;
  p = p * z + 1.0 / 9;
  p = p * z + 1.0 / 7;
  p = p * z + 1.0 / 5;
  p = p * z + 1.0 / 3;
  p = p * z + 1.0;
  return {2.0 * s * p + (is_large ? 0.34657359027997264 : 0.0), (u + 2.0) * both};
}

// Replaces invalid samples by zeros of weight 0, finds buckets, counts replacements.
ELASTICCTR_CLONES
Invalid Clean(const float* logits, const float* labels, const float* weights, size_t n, Block* __restrict block) {
  uint32_t bad_scores = 0;
  uint32_t bad_samples = 0;
  for (size_t i = 0; i < n; ++i) {
    const float x = logits[i];
    const float y = labels[i];
    const float w = weights[i];
    const uint32_t bad_score = x == x ? 0 : 1;
    const uint32_t bad_label = (y >= 0.0f ? 0 : 1) | (y <= 1.0f ? 0 : 1);
    const uint32_t bad_weight = (w >= 0.0f ? 0 : 1) | (w <= kMaxWeight ? 0 : 1);
    const uint32_t bad = bad_score | bad_label | bad_weight;
    bad_scores += bad_score;
    bad_samples += bad;
    const float logit = bad != 0 ? 0.0f : x;
    block->logit[i] = logit;
    block->label[i] = bad != 0 ? 0.0f : y;
    block->scale[i] = bad != 0 ? 0.0f : w;
    block->bucket[i] = BucketOfLogit(logit);
  }
  return {bad_scores, bad_samples - bad_scores};
}

// The integer nearest to 0 <= v < 2^51.
ELASTICCTR_INLINE uint64_t ToInteger(double v) {
  return std::bit_cast<uint64_t>(v + kRound) - std::bit_cast<uint64_t>(kRound);
}

struct Evaluated {
  double loss;
  double predicted;
};

ELASTICCTR_INLINE Evaluated EvaluateOne(double x, double y) {
  x = x < -kMaxLogit ? -kMaxLogit : x;
  x = x > kMaxLogit ? kMaxLogit : x;
  const double e = ExpNegative(x < 0.0 ? -x : x);
  const Softplus softplus = SoftplusOf(e);
  return {(x > 0.0 ? x : 0.0) - x * y + softplus.log1p, (x < 0.0 ? e : 1.0) * softplus.inverse};
}

ELASTICCTR_CLONES
void Evaluate(size_t n, Block* __restrict block) {
  constexpr double kToSum = 1 << (kSumBits - kWeightBits);
  uint64_t loss_sum = 0;
  uint64_t predicted_sum = 0;
  for (size_t i = 0; i < n; ++i) {
    const double y = block->label[i];
    const double weight = (block->scale[i] * kWeightOne + kRound) - kRound;
    const auto [loss, predicted] = EvaluateOne(block->logit[i], y);
    const uint64_t positive = ToInteger(weight * y);
    block->positive[i] = positive;
    block->negative[i] = ToInteger(weight) - positive;
    loss_sum += ToInteger(weight * loss * kToSum);
    predicted_sum += ToInteger(weight * predicted * kToSum);
  }
  block->loss = loss_sum;
  block->predicted = predicted_sum;
}

ELASTICCTR_CLONES
void EvaluateSamples(const float* logits, const float* labels, size_t n, double* __restrict loss,
                     double* __restrict predicted) {
  for (size_t i = 0; i < n; ++i) {
    const Evaluated one = EvaluateOne(logits[i], labels[i]);
    loss[i] = one.loss;
    predicted[i] = one.predicted;
  }
}

}  // namespace

Invalid ComputeBlock(const float* logits, const float* labels, const float* weights, size_t n, Block* block) {
  const Invalid invalid = Clean(logits, labels, weights, n, block);
  Evaluate(n, block);
  return invalid;
}

void EvaluateEach(const Block& block, size_t n, double* loss, double* predicted) {
  EvaluateSamples(block.logit, block.label, n, loss, predicted);
}

void LogitsOfScores(const float* scores, size_t n, float* logits) {
  for (size_t i = 0; i < n; ++i) {
    const double score = scores[i];
    if (score >= 0.0 && score <= 1.0) {
      const double p = std::fmin(std::fmax(score, kMinScore), 1.0 - kMinScore);
      logits[i] = static_cast<float>(std::log(p / (1.0 - p)));
    } else {
      logits[i] = std::numeric_limits<float>::quiet_NaN();
    }
  }
}

}  // namespace elasticctr::metric
