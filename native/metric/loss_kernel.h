// The vectorised inner loop of BinaryMetrics: what each sample of a block adds to the sums, as exact integers.
//
// All sums are integers, so they do not depend on the order or grouping of samples:
// weights and labels   multiples of 2^-20 (a weight of 1 is kWeightOne)
// loss and prediction  multiples of 2^-30 of weight × value
// The arithmetic is plain IEEE double without fused operations, so every instruction set gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace elasticctr::metric {

inline constexpr int kWeightBits = 20;
inline constexpr int kSumBits = 30;
inline constexpr double kWeightOne = 1 << kWeightBits;
// The largest weight for which weight × loss stays below 2^51 units, where a double holds every integer.
inline constexpr float kMaxWeight = 1 << 16;
// Logits are clamped to this for loss and prediction: a probability nearer than 9.4e-14 to 0 or 1 counts as that.
inline constexpr double kMaxLogit = 30.0;
// Scores (probabilities) are clamped to [kMinScore, 1 - kMinScore], the resolution of float32 near 1.
inline constexpr double kMinScore = 0x1p-23;

inline constexpr size_t kBlock = 256;

// What a block of samples adds. Invalid samples add zeros.
struct Block {
  uint64_t positive[kBlock];  // weight × label, in 2^-20
  uint64_t negative[kBlock];  // the rest of the weight
  int32_t bucket[kBlock];     // BucketOfLogit
  uint64_t loss;              // sum of weight × logloss, in 2^-30
  uint64_t predicted;         // sum of weight × predicted probability, in 2^-30

  float logit[kBlock];  // cleaned inputs
  float label[kBlock];
  float scale[kBlock];
};

struct Invalid {
  uint64_t scores = 0;  // NaN, or a probability outside [0, 1]
  uint64_t labels = 0;  // label outside [0, 1], or weight not in [0, 2^16], and the score is fine
};

// REQUIRES: n <= kBlock; the three arrays hold n floats.
Invalid ComputeBlock(const float* logits, const float* labels, const float* weights, size_t n, Block* block);

// Loss and predicted probability of each sample, as ComputeBlock takes them. REQUIRES: `block` comes from it, of n
// samples.
void EvaluateEach(const Block& block, size_t n, double* loss, double* predicted);

// The logits of probabilities; NaN where a value is not one. REQUIRES: n <= kBlock.
void LogitsOfScores(const float* scores, size_t n, float* logits);

}  // namespace elasticctr::metric
