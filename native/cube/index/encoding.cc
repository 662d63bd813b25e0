#include "cube/index/encoding.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "util/half.h"
#include "util/status.h"
#include "util/target.h"

namespace elasticctr::cube {
namespace {

ELASTICCTR_CLONES size_t EncodeHalves(const float* values, size_t count, uint8_t* rows) {
  size_t bad = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint16_t half = HalfOf(values[i]);
    bad += (half & 0x7C00u) == 0x7C00u;
    std::memcpy(rows + 2 * i, &half, 2);
  }
  return bad;
}

ELASTICCTR_CLONES void DecodeHalves(const uint8_t* rows, size_t count, float* values) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t half;
    std::memcpy(&half, rows + 2 * i, 2);
    values[i] = FloatOf(half);
  }
}

ELASTICCTR_CLONES size_t EncodeBytes(const float* values, size_t n, uint32_t dim, uint8_t* rows) {
  size_t bad = 0;
  for (size_t i = 0; i < n; ++i, values += dim, rows += 4 + dim) {
    // Magnitudes as integers: they order like the floats, and non-finite values come out largest.
    uint32_t largest = 0;
    for (uint32_t j = 0; j < dim; ++j) {
      const uint32_t magnitude = std::bit_cast<uint32_t>(values[j]) & 0x7FFFFFFFu;
      largest = magnitude > largest ? magnitude : largest;
    }
    if (largest >= kFloatInfinityBits) {
      for (uint32_t j = 0; j < dim; ++j) bad += !std::isfinite(values[j]);
      std::memset(rows, 0, 4 + dim);
      continue;
    }
    const float scale = std::bit_cast<float>(largest) / 127.0f;
    std::memcpy(rows, &scale, 4);
    const float divisor = scale > 0.0f ? scale : 1.0f;
    for (uint32_t j = 0; j < dim; ++j) {
      float q = Nearest(values[j] / divisor);  // a scale that lost bits to underflow can overshoot
      q = q > 127.0f ? 127.0f : q;
      q = q < -127.0f ? -127.0f : q;
      rows[4 + j] = static_cast<uint8_t>(static_cast<int8_t>(static_cast<int32_t>(q)));
    }
  }
  return bad;
}

ELASTICCTR_CLONES void DecodeBytes(const uint8_t* rows, size_t n, uint32_t dim, float* values) {
  for (size_t i = 0; i < n; ++i, values += dim, rows += 4 + dim) {
    float scale;
    std::memcpy(&scale, rows, 4);
    for (uint32_t j = 0; j < dim; ++j) values[j] = scale * static_cast<float>(static_cast<int8_t>(rows[4 + j]));
  }
}

}  // namespace

size_t EncodeRows(const float* values, size_t n, uint32_t dim, Encoding encoding, uint8_t* rows) {
  switch (encoding) {
    case Encoding::kFloat32: std::memcpy(rows, values, n * dim * sizeof(float)); return 0;
    case Encoding::kFloat16: return EncodeHalves(values, n * dim, rows);
    case Encoding::kInt8: return EncodeBytes(values, n, dim, rows);
    case Encoding::kRaw: break;
  }
  throw Error(Code::kInternal, "raw rows have no floats");
}

void DecodeRows(const uint8_t* rows, size_t n, uint32_t dim, Encoding encoding, float* values) {
  switch (encoding) {
    case Encoding::kFloat32: std::memcpy(values, rows, n * dim * sizeof(float)); return;
    case Encoding::kFloat16: return DecodeHalves(rows, n * dim, values);
    case Encoding::kInt8: return DecodeBytes(rows, n, dim, values);
    case Encoding::kRaw: break;
  }
  throw Error(Code::kInternal, "raw rows have no floats");
}

}  // namespace elasticctr::cube
