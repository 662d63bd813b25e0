#include "sample/tabs.h"

#include <bit>

#include "util/coding.h"
#include "util/target.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace elasticctr {
namespace {

// A bit for each of 64 bytes that is a TAB.
ELASTICCTR_INLINE uint64_t TabMask(const char* p) {
  uint64_t mask = 0;
#if defined(__SSE2__)
  const __m128i tab = _mm_set1_epi8('\t');
  for (int i = 0; i < 4; ++i) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16 * i));
    mask |= static_cast<uint64_t>(static_cast<uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, tab)))) << (16 * i);
  }
#else
  for (int i = 0; i < 64; ++i) mask |= uint64_t{p[i] == '\t'} << i;
#endif
  return mask;
}

}  // namespace

ELASTICCTR_CLONES size_t FindTabs(const char* p, const char* end, uint32_t* at) {
  const auto size = static_cast<size_t>(end - p);
  size_t count = 0;
  for (size_t base = 0; base < size && count <= kMaxTabs; base += 64) {
    uint64_t mask = TabMask(p + base);
    if (size - base < 64) mask &= (uint64_t{1} << (size - base)) - 1;
    // Eight at a time, wanted or not: the number of TABs in 64 bytes cannot be guessed, the number of eights can.
    const auto found = static_cast<size_t>(std::popcount(mask));
    for (size_t done = 0; done < found; done += 8) {
      for (size_t i = 0; i < 8; ++i) {
        at[count + done + i] = static_cast<uint32_t>(base + static_cast<size_t>(std::countr_zero(mask)));
        mask &= mask - 1;
      }
    }
    count += found;
  }
  return count;
}

}  // namespace elasticctr
