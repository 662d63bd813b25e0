#include "table/initializer.h"

#include "util/hash.h"

namespace elasticctr {
namespace {

constexpr uint64_t kStep = 0x9E3779B97F4A7C15ULL;

// The n-th number of a SplitMix64 stream.
inline uint64_t Draw(uint64_t stream, uint64_t n) { return Mix64(stream + (n + 1) * kStep); }

// A uniform float in [0, 1) with 24 bits, exact.
inline float Unit(uint64_t bits) { return static_cast<float>(bits >> 40) * 0x1p-24f; }

// Twelve 16-bit uniforms summed as integers and centred: mean 0, variance 1, tails cut at 6.
inline float StandardNormal(uint64_t stream, uint64_t n) {
  int64_t sum = 0;
  for (uint64_t i = 0; i < 3; ++i) {
    const uint64_t bits = Draw(stream, 3 * n + i);
    sum += static_cast<int64_t>((bits & 0xFFFF) + ((bits >> 16) & 0xFFFF) + ((bits >> 32) & 0xFFFF) + (bits >> 48));
  }
  constexpr int64_t kMean = 6 * 65535;
  return static_cast<float>(sum - kMean) * 0x1p-16f;
}

}  // namespace

Initializer::Initializer(const InitializerSettings& settings, const std::string& table, const std::string& segment,
                         uint64_t seed)
    : settings_(settings), salt_(Xxh64(segment.data(), segment.size(), Xxh64(table.data(), table.size(), seed))) {}

void Initializer::Fill(uint64_t feasign, float* weights, size_t dim) const {
  const uint64_t stream = Mix64(feasign ^ salt_) + salt_;
  switch (settings_.kind) {
    case InitializerKind::kZeros:
      for (size_t i = 0; i < dim; ++i) weights[i] = 0.0f;
      break;
    case InitializerKind::kConstant:
      for (size_t i = 0; i < dim; ++i) weights[i] = settings_.a;
      break;
    case InitializerKind::kUniform: {
      const float range = settings_.b - settings_.a;
      for (size_t i = 0; i < dim; ++i) weights[i] = settings_.a + range * Unit(Draw(stream, i));
      break;
    }
    case InitializerKind::kNormal:
      for (size_t i = 0; i < dim; ++i) weights[i] = settings_.a + settings_.b * StandardNormal(stream, i);
      break;
  }
}

}  // namespace elasticctr
