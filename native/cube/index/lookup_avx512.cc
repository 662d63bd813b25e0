// Lookups with AVX-512: a bucket is one register.
#if defined(__x86_64__)
#include <immintrin.h>

#define LOOKUP_TARGET __attribute__((target("arch=x86-64-v4,prefer-vector-width=256")))
#include "cube/index/lookup_loop.h"

namespace elasticctr::cube {
namespace {

struct Avx512 {
  static LOOKUP_INLINE unsigned Matches(const Bucket& bucket, uint64_t feasign) {
    const __m512i all = _mm512_load_si512(&bucket);
    const unsigned matches = _mm512_cmpeq_epi64_mask(all, _mm512_set1_epi64(static_cast<int64_t>(feasign)));
    return matches & ((1u << (bucket.count & 7)) - 1);
  }
};

}  // namespace

LOOKUP_TARGET LookupResult LookupAvx512(const Layers& layers, const uint64_t* feasigns, size_t n, uint8_t* rows,
                                        uint8_t* found, size_t* hits) {
  return Dispatch<Avx512>(layers, feasigns, n, rows, found, hits);
}

}  // namespace elasticctr::cube
#endif
