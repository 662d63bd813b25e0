// Dropout by a hash of each value's position. The result does not depend on the thread or the order of computation, and
// no mask needs to be stored: a dropped value is a zero among the activations.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace elasticctr::dense {

struct Dropout {
  uint64_t key = 0;        // of one layer in one step
  uint32_t threshold = 0;  // of every 65,536 values, how many are set to zero; 0: no dropout
  float scale = 1.0f;      // of the kept values, so that the expected value is unchanged
};

// Spreads every bit of x over all of the result (the end of splitmix64).
inline uint64_t MixBits(uint64_t x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

// share: of values to drop, in [0, 1). seed: of the step.
inline Dropout MakeDropout(double share, uint64_t seed, size_t layer) {
  constexpr double kSteps = 65536;
  Dropout dropout;
  dropout.key = MixBits(MixBits(seed) + layer + 1);
  dropout.threshold = static_cast<uint32_t>(std::clamp(share * kSteps + 0.5, 0.0, kSteps - 1));
  dropout.scale = static_cast<float>(kSteps / (kSteps - dropout.threshold));
  return dropout;
}

}  // namespace elasticctr::dense
