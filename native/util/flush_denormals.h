// Treats subnormal numbers as zero, on this thread and during the lifetime of an instance: each one costs the processor
// about a hundred cycles. The moments of a parameter without gradients shrink into that range and stay there; gradients
// of samples that the model has memorised are in it from the start.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace elasticctr {

class FlushDenormals {
 public:
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;
#if defined(__x86_64__)
  FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kFlushResults | kFlushInputs); }
  ~FlushDenormals() { _mm_setcsr(before_); }

 private:
  static constexpr uint32_t kFlushResults = 1u << 15, kFlushInputs = 1u << 6;
  const uint32_t before_;
#else
  FlushDenormals() {}
#endif
};

}  // namespace elasticctr
