#include "sample/format/separators.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "util/coding.h"
#include "util/target.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace elasticctr {
namespace {

// A bit for each of 64 bytes that is `a` or `b`.
template <char a, char b>
ELASTICCTR_INLINE uint64_t MaskOf(const char* p) {
  uint64_t mask = 0;
#if defined(__SSE2__)
  for (int i = 0; i < 4; ++i) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16 * i));
    __m128i equal = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(a));
    if constexpr (a != b) equal = _mm_or_si128(equal, _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b)));
    mask |= static_cast<uint64_t>(static_cast<uint32_t>(_mm_movemask_epi8(equal))) << (16 * i);
  }
#else
  for (int i = 0; i < 64; ++i) mask |= uint64_t{p[i] == a || p[i] == b} << i;
#endif
  return mask;
}

template <char a, char b>
ELASTICCTR_INLINE size_t Find(const char* p, const char* end, size_t most, uint32_t* at) {
  const auto size = static_cast<size_t>(end - p);
  size_t count = 0;
  for (size_t base = 0; base < size && count <= most; base += 64) {
    uint64_t mask = MaskOf<a, b>(p + base);
    if (size - base < 64) mask &= (uint64_t{1} << (size - base)) - 1;
    // Writes four at a time, needed or not: the exact count per 64 bytes is unpredictable, the number of fours is not.
    const auto found = static_cast<size_t>(std::popcount(mask));
    for (size_t done = 0; done < found; done += 4) {
      for (size_t i = 0; i < 4; ++i) {
        at[count + done + i] = static_cast<uint32_t>(base + static_cast<size_t>(std::countr_zero(mask)));
        mask &= mask - 1;
      }
    }
    count += found;
  }
  return count;
}

ELASTICCTR_CLONES size_t CountLineEnds(const char* p, size_t size) {
  constexpr size_t kLanes = 64, kRounds = 255;  // the most that fit a byte
  size_t count = 0;
  while (size >= kLanes) {
    uint8_t lanes[kLanes] = {};
    const size_t rounds = std::min(size / kLanes, kRounds);
    for (size_t round = 0; round < rounds; ++round, p += kLanes) {
      for (size_t i = 0; i < kLanes; ++i) lanes[i] += p[i] == '\n';
    }
    for (const uint8_t lane : lanes) count += lane;
    size -= rounds * kLanes;
  }
  return count + static_cast<size_t>(std::count(p, p + size, '\n'));
}

}  // namespace

ELASTICCTR_CLONES size_t FindTabs(const char* p, const char* end, uint32_t* at) {
  return Find<'\t', '\t'>(p, end, kMaxTabs, at);
}

ELASTICCTR_CLONES size_t FindBlanks(const char* p, const char* end, uint32_t* at) {
  return Find<' ', '\t'>(p, end, std::numeric_limits<size_t>::max(), at);
}

WholeLines CutLines(std::string_view text) {
  const size_t bytes = text.rfind('\n') + 1;  // npos + 1 is 0
  return {bytes, CountLineEnds(text.data(), bytes)};
}

}  // namespace elasticctr
