#include "cube/index/lookup.h"

#include "util/target.h"

#define LOOKUP_TARGET
#include "cube/index/lookup_loop.h"

namespace elasticctr::cube {

#if defined(__x86_64__)
LookupResult LookupAvx512(const Layers& layers, const uint64_t* feasigns, size_t n, uint8_t* rows, uint8_t* found,
                          size_t* hits);
#endif

namespace {

struct Portable {
  static ELASTICCTR_INLINE unsigned Matches(const Bucket& bucket, uint64_t feasign) {
    unsigned matches = 0;
#pragma GCC unroll 7
    for (unsigned i = 0; i < Bucket::kFeasigns; ++i) {
      matches |= static_cast<unsigned>(bucket.feasigns[i] == feasign) << i;
    }
    return matches & ((1u << (bucket.count & 7)) - 1);
  }
};

}  // namespace

ELASTICCTR_CLONES LookupResult LookupPortable(const Layers& layers, const uint64_t* feasigns, size_t n, uint8_t* rows,
                                              uint8_t* found, size_t* hits) {
  return Dispatch<Portable>(layers, feasigns, n, rows, found, hits);
}

LookupResult LookupRows(const Layers& layers, const uint64_t* feasigns, size_t n, uint8_t* rows, uint8_t* found,
                        size_t* hits) {
#if defined(__x86_64__)
  static const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (has_avx512) return LookupAvx512(layers, feasigns, n, rows, found, hits);
#endif
  return LookupPortable(layers, feasigns, n, rows, found, hits);
}

}  // namespace elasticctr::cube
