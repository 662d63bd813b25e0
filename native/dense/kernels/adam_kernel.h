// Adam over a vector type, to be included like panel_kernels.h. V also provides Add, Subtract, Multiply, Divide, Root.
#pragma once

#include "dense/adam.h"
#include "dense/kernels/panel_kernels.h"

namespace elasticctr::dense {
namespace {

template <typename V>
DENSE_INLINE void AdamAt(const AdamSpan& s, const float* gradient, float* weights, float* mean, float* square) {
  typename V::Register w = V::Load(weights), m = V::Load(mean), v = V::Load(square);
  const typename V::Register g = V::Add(V::Load(gradient), V::Multiply(w, V::Broadcast(&s.weight_decay)));
  m = V::Add(m, V::Multiply(V::Subtract(g, m), V::Broadcast(&s.one_minus_beta1)));
  v = V::Add(V::Multiply(v, V::Broadcast(&s.beta2)), V::Multiply(V::Multiply(g, g), V::Broadcast(&s.one_minus_beta2)));
  const auto root = V::Add(V::Divide(V::Root(v), V::Broadcast(&s.root_correction)), V::Broadcast(&s.epsilon));
  w = V::Subtract(w, V::Divide(V::Multiply(m, V::Broadcast(&s.step_size)), root));
  V::Store(weights, w);
  V::Store(mean, m);
  V::Store(square, v);
}

template <typename V>
DENSE_TARGET void AdamOver(const AdamSpan& s) {
  // Parameters and their state are rarely in a cache when their step comes, and the hardware prefetcher stops at each
  // page boundary.
  constexpr size_t kAhead = 256;
  size_t i = 0;
  for (; i + V::kLanes <= s.size; i += V::kLanes) {
    __builtin_prefetch(s.gradient + i + kAhead);
    __builtin_prefetch(s.weights + i + kAhead, 1);
    __builtin_prefetch(s.mean + i + kAhead, 1);
    __builtin_prefetch(s.square + i + kAhead, 1);
    AdamAt<V>(s, s.gradient + i, s.weights + i, s.mean + i, s.square + i);
  }
  if (i == s.size) return;
  // The last few elements, in a vector of their own.
  const size_t bytes = (s.size - i) * sizeof(float);
  float part[4][V::kLanes] = {};
  std::memcpy(part[0], s.gradient + i, bytes);
  std::memcpy(part[1], s.weights + i, bytes);
  std::memcpy(part[2], s.mean + i, bytes);
  std::memcpy(part[3], s.square + i, bytes);
  AdamAt<V>(s, part[0], part[1], part[2], part[3]);
  std::memcpy(s.weights + i, part[1], bytes);
  std::memcpy(s.mean + i, part[2], bytes);
  std::memcpy(s.square + i, part[3], bytes);
}

}  // namespace
}  // namespace elasticctr::dense
