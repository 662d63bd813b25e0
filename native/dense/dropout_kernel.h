// Which values of one row of a panel are dropped, for inclusion as panel_kernels.h. The same on every CPU.
#pragma once

#include "dense/dropout.h"
#include "dense/panel_kernels.h"

namespace elasticctr::dense {
namespace {

// Sixteen random bits for each of the 32 columns: the first half of them in the lower halves of the words.
DENSE_INLINE void DrawBits(uint64_t key, size_t row, size_t panel, uint32_t* words) {
  const uint64_t base = MixBits(key + (static_cast<uint64_t>(row) << 24 | panel) * 0x9E3779B97F4A7C15u);
  const auto low = static_cast<uint32_t>(base), high = static_cast<uint32_t>(base >> 32);
  for (uint32_t j = 0; j < kPanel / 2; ++j) {
    uint32_t x = low + j * 0x9E3779B9u;
    x = (x ^ x >> 16) * 0x7FEB352Du;
    x = (x ^ x >> 15 ^ high) * 0x846CA68Bu;
    words[j] = x ^ x >> 16;
  }
}

// What to multiply each column with: 0 or the scale of those kept.
[[maybe_unused]] DENSE_INLINE void DrawScales(const Dropout& dropout, size_t row, size_t panel, float* scales) {
  alignas(64) uint32_t words[kPanel / 2];
  DrawBits(dropout.key, row, panel, words);
  const uint32_t threshold = dropout.threshold;
  const float scale = dropout.scale;
  for (size_t j = 0; j < kPanel / 2; ++j) scales[j] = (words[j] & 0xFFFF) < threshold ? 0.0f : scale;
  for (size_t j = 0; j < kPanel / 2; ++j) scales[kPanel / 2 + j] = words[j] >> 16 < threshold ? 0.0f : scale;
}

}  // namespace
}  // namespace elasticctr::dense
