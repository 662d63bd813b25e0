// Numbers too small to be normal count as zero while a TinyIsZero lives, on its thread: each costs a processor a
// hundred cycles. The moments of a parameter without gradients shrink until they are such numbers and stay there, and
// the gradients of samples that are known by heart are such numbers from the start.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace elasticctr {

class TinyIsZero {
 public:
  TinyIsZero(const TinyIsZero&) = delete;
  TinyIsZero& operator=(const TinyIsZero&) = delete;
#if defined(__x86_64__)
  TinyIsZero() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kFlushResults | kFlushInputs); }
  ~TinyIsZero() { _mm_setcsr(before_); }

 private:
  static constexpr uint32_t kFlushResults = 1u << 15, kFlushInputs = 1u << 6;
  const uint32_t before_;
#else
  TinyIsZero() {}
#endif
};

}  // namespace elasticctr
