// Tensors passed as addresses of their contiguous float32 memory: wrapping each of a tower's tensors would cost more
// than a small tower's work. The callers in src/elasticctr check shapes and types: models/layers/native_*.py and
// train/dense_optimizer.py.
#pragma once

#include <cstdint>
#include <vector>

namespace elasticctr {

using Address = uintptr_t;

inline float* At(Address address) { return reinterpret_cast<float*>(address); }

inline std::vector<float*> AllAt(const std::vector<Address>& addresses) {
  std::vector<float*> pointers;
  for (const Address address : addresses) pointers.push_back(At(address));
  return pointers;
}

}  // namespace elasticctr
