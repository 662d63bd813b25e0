#include "util/hash.h"

namespace elasticctr {
namespace {

using namespace xxh;

inline uint64_t MergeLane(uint64_t hash, uint64_t lane) { return (hash ^ Round(0, lane)) * kPrime1 + kPrime4; }

}  // namespace

uint64_t Xxh64(const void* data, size_t size, uint64_t seed) {
  const auto* p = static_cast<const uint8_t*>(data);
  const size_t total = size;
  uint64_t hash;
  if (size >= 32) {
    uint64_t a = seed + kPrime1 + kPrime2, b = seed + kPrime2, c = seed, d = seed - kPrime1;
    for (; size >= 32; size -= 32, p += 32) {
      a = Round(a, DecodeFixed64(p));
      b = Round(b, DecodeFixed64(p + 8));
      c = Round(c, DecodeFixed64(p + 16));
      d = Round(d, DecodeFixed64(p + 24));
    }
    hash = Rotate(a, 1) + Rotate(b, 7) + Rotate(c, 12) + Rotate(d, 18);
    hash = MergeLane(MergeLane(MergeLane(MergeLane(hash, a), b), c), d);
  } else {
    hash = seed + kPrime5;
  }
  hash += total;
  for (; size >= 8; size -= 8, p += 8) hash = Mix8(hash, DecodeFixed64(p));
  if (size >= 4) {
    hash = Rotate(hash ^ (DecodeFixed32(p) * kPrime1), 23) * kPrime2 + kPrime3;
    p += 4;
    size -= 4;
  }
  for (; size > 0; --size, ++p) hash = Rotate(hash ^ (*p * kPrime5), 11) * kPrime1;
  return Avalanche(hash);
}

}  // namespace elasticctr
