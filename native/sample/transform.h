// The transform applied to a dense number before a model sees it. Parsers, servers and bucket edges all use this one.
#pragma once

#include <cmath>
#include <cstdint>

#include "sample/spec.h"

namespace elasticctr {

inline float Log1p(double value) { return static_cast<float>(std::log1p(value > 0 ? value : 0)); }

// The logarithm that a kLog1p slot holds, computed from its value without a diff. REQUIRES: index < slot.dim.
inline float ScaleLog(const DenseSpec& slot, uint32_t index, float log) {
  return slot.diff.empty() ? log : static_cast<float>(log / slot.diff[index]);
}

// Keeps -0.0 if it means a missing value. REQUIRES: index < slot.dim.
inline float TransformDense(const DenseSpec& slot, uint32_t index, double value) {
  if (value == 0 && slot.marks_missing && std::signbit(value)) return -0.0f;
  switch (slot.transform) {
    case Transform::kNone: break;
    case Transform::kLog1p: return ScaleLog(slot, index, Log1p(value));
    case Transform::kScale: return static_cast<float>((value - slot.min[index]) / slot.diff[index]);
  }
  return static_cast<float>(value);
}

}  // namespace elasticctr
