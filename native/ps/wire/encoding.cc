// Converts rows and gradients to and from the bytes of a frame.
#include <bit>
#include <cstring>

#include "ps/wire/frames.h"
#include "util/half.h"
#include "util/target.h"

namespace elasticctr::ps {
namespace {

constexpr uint16_t kLargestHalf = 0x7BFFu, kNotANumber = 0x7E00u;
constexpr size_t kScaleBytes = sizeof(float);

ELASTICCTR_CLONES void EncodeHalves(const float* values, size_t count, uint8_t* out) {
  for (size_t i = 0; i < count; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(values[i]) & 0x7FFFFFFFu;
    const uint32_t half = HalfOf(values[i]);
    const uint32_t sign = half & 0x8000u, bounded = (half & 0x7FFFu) > kLargestHalf ? kLargestHalf | sign : half;
    const auto result = static_cast<uint16_t>(magnitude >= kFloatInfinityBits ? kNotANumber : bounded);
    std::memcpy(out + 2 * i, &result, sizeof result);
  }
}

ELASTICCTR_CLONES void DecodeHalves(const uint8_t* bytes, size_t count, float* out) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t half;
    std::memcpy(&half, bytes + 2 * i, sizeof half);
    out[i] = FloatOf(half);
  }
}

// The upper halves of floats, rounded to nearest even.
ELASTICCTR_CLONES void EncodeUpperHalves(const float* values, size_t count, uint8_t* out) {
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(values[i]);
    const uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
    const bool is_finite = (bits & 0x7FFFFFFFu) < kFloatInfinityBits;
    const auto result = static_cast<uint16_t>(is_finite ? rounded : kFloatInfinityBits >> 16 | 0x40u);
    std::memcpy(out + 2 * i, &result, sizeof result);
  }
}

ELASTICCTR_CLONES void DecodeUpperHalves(const uint8_t* bytes, size_t count, float* out) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t half;
    std::memcpy(&half, bytes + 2 * i, sizeof half);
    out[i] = std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
  }
}

ELASTICCTR_CLONES void EncodeBytes(const float* values, size_t count, size_t dim, uint8_t* out) {
  const size_t stride = EncodedBytes(Encoding::kInt8, dim);
  for (size_t i = 0; i < count; ++i, values += dim, out += stride) {
    // Magnitudes as integers: they order like the floats, and non-finite values come out largest.
    uint32_t largest = 0;
    for (size_t j = 0; j < dim; ++j) {
      const uint32_t magnitude = std::bit_cast<uint32_t>(values[j]) & 0x7FFFFFFFu;
      largest = magnitude > largest ? magnitude : largest;
    }
    const bool is_finite = largest < kFloatInfinityBits;
    const float scale = std::bit_cast<float>(is_finite ? largest : 0x7FC00000u) / 127.0f;
    const float divisor = scale > 0.0f ? scale : 1.0f;
    std::memcpy(out, &scale, kScaleBytes);
    std::memset(out + kScaleBytes + dim, 0, stride - kScaleBytes - dim);
    for (size_t j = 0; j < dim; ++j) {
      float q = is_finite ? Nearest(values[j] / divisor) : 0.0f;
      q = q > 127.0f ? 127.0f : q;  // a scale that lost bits to underflow can overshoot
      q = q < -127.0f ? -127.0f : q;
      out[kScaleBytes + j] = static_cast<uint8_t>(static_cast<int8_t>(static_cast<int32_t>(q)));
    }
  }
}

ELASTICCTR_CLONES void DecodeBytes(const uint8_t* bytes, size_t count, size_t dim, float* out) {
  const size_t stride = EncodedBytes(Encoding::kInt8, dim);
  for (size_t i = 0; i < count; ++i, bytes += stride, out += dim) {
    float scale;
    std::memcpy(&scale, bytes, kScaleBytes);
    for (size_t j = 0; j < dim; ++j) out[j] = scale * static_cast<float>(static_cast<int8_t>(bytes[kScaleBytes + j]));
  }
}

constexpr float kLargest = 1e18f;

ELASTICCTR_CLONES bool AreFloatsFinite(const uint8_t* bytes, size_t count) {
  const uint32_t largest = std::bit_cast<uint32_t>(kLargest);
  uint32_t bad = 0;
  for (size_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, bytes + 4 * i, sizeof bits);
    bad |= static_cast<uint32_t>((bits & 0x7FFFFFFFu) > largest);
  }
  return bad == 0;
}

// For fp16 or bf16: magnitudes order like their bits, with non-finite values above all finite ones.
ELASTICCTR_CLONES bool IsNoneAbove(const uint8_t* bytes, size_t count, uint32_t largest) {
  uint32_t bad = 0;
  for (size_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, bytes + 2 * i, sizeof bits);
    bad |= static_cast<uint32_t>((bits & 0x7FFFu) > largest);
  }
  return bad == 0;
}

}  // namespace

size_t EncodedBytes(Encoding encoding, size_t dim) {
  switch (encoding) {
    case Encoding::kFp16:
    case Encoding::kBf16: return 2 * dim;
    case Encoding::kInt8: return kScaleBytes + (dim + 3) / 4 * 4;
    case Encoding::kFp32: break;
  }
  return 4 * dim;
}

void EncodeRows(Encoding encoding, const float* rows, size_t count, size_t dim, uint8_t* out) {
  if (count == 0) return;
  switch (encoding) {
    case Encoding::kFp16: return EncodeHalves(rows, count * dim, out);
    case Encoding::kBf16: return EncodeUpperHalves(rows, count * dim, out);
    case Encoding::kInt8: return EncodeBytes(rows, count, dim, out);
    case Encoding::kFp32: std::memcpy(out, rows, count * dim * sizeof(float)); return;
  }
}

void DecodeRows(Encoding encoding, const uint8_t* bytes, size_t count, size_t dim, float* out) {
  if (count == 0) return;
  switch (encoding) {
    case Encoding::kFp16: return DecodeHalves(bytes, count * dim, out);
    case Encoding::kBf16: return DecodeUpperHalves(bytes, count * dim, out);
    case Encoding::kInt8: return DecodeBytes(bytes, count, dim, out);
    case Encoding::kFp32: std::memcpy(out, bytes, count * dim * sizeof(float)); return;
  }
}

bool AreFinite(Encoding encoding, const uint8_t* bytes, size_t count, size_t dim) {
  if (encoding == Encoding::kFp32) return AreFloatsFinite(bytes, count * dim);
  if (encoding == Encoding::kFp16) return IsNoneAbove(bytes, count * dim, kLargestHalf);
  if (encoding == Encoding::kBf16) return IsNoneAbove(bytes, count * dim, std::bit_cast<uint32_t>(kLargest) >> 16);
  const size_t stride = EncodedBytes(encoding, dim);
  for (size_t i = 0; i < count; ++i) {
    float scale;
    std::memcpy(&scale, bytes + i * stride, sizeof scale);
    if (!(scale <= kLargest / 128.0f && scale >= -kLargest / 128.0f)) return false;
  }
  return true;
}

}  // namespace elasticctr::ps
