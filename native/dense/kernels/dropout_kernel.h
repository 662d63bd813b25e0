// Decides which values of one row of a panel are dropped; to be included like panel_kernels.h. The same on every CPU.
#pragma once

#include "dense/kernels/panel_kernels.h"
#include "dense/tower/dropout.h"

namespace elasticctr::dense {
namespace {

// A word for every two columns of a panel.
using Words = uint32_t __attribute__((vector_size(kPanel / 2 * sizeof(uint32_t))));
using WordFloats = float __attribute__((vector_size(sizeof(Words))));

// Sixteen random bits for each of the 32 columns; those of the first 16 are in the lower halves of the words.
DENSE_INLINE Words DrawBits(uint64_t key, size_t row, size_t panel) {
  const uint64_t base = MixBits(key + (static_cast<uint64_t>(row) << 24 | panel) * 0x9E3779B97F4A7C15u);
  const auto low = static_cast<uint32_t>(base), high = static_cast<uint32_t>(base >> 32);
  Words x = Words{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} * 0x9E3779B9u + low;
  x = (x ^ x >> 16) * 0x7FEB352Du;
  x = (x ^ x >> 15 ^ high) * 0x846CA68Bu;
  return x ^ x >> 16;
}

// The factor of each column: 0 if dropped, else the scale of kept values.
[[maybe_unused]] DENSE_INLINE void DrawScales(const Dropout& dropout, size_t row, size_t panel, float* scales) {
  const Words bits = DrawBits(dropout.key, row, panel);
  const WordFloats zero = {}, scale = zero + dropout.scale;
  const WordFloats first = (bits & 0xFFFF) < dropout.threshold ? zero : scale;
  const WordFloats second = bits >> 16 < dropout.threshold ? zero : scale;
  std::memcpy(scales, &first, sizeof first);
  std::memcpy(scales + kPanel / 2, &second, sizeof second);
}

}  // namespace
}  // namespace elasticctr::dense
