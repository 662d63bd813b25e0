#include "util/hash.h"

#include "util/coding.h"

namespace elasticctr {
namespace {

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87ULL;
constexpr uint64_t kPrime2 = 0xC2B2AE3D27D4EB4FULL;
constexpr uint64_t kPrime3 = 0x165667B19E3779F9ULL;
constexpr uint64_t kPrime4 = 0x85EBCA77C2B2AE63ULL;
constexpr uint64_t kPrime5 = 0x27D4EB2F165667C5ULL;

inline uint64_t Rotate(uint64_t x, int bits) { return (x << bits) | (x >> (64 - bits)); }

inline uint64_t Round(uint64_t lane, uint64_t input) { return Rotate(lane + input * kPrime2, 31) * kPrime1; }

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
  for (; size >= 8; size -= 8, p += 8) hash = Rotate(hash ^ Round(0, DecodeFixed64(p)), 27) * kPrime1 + kPrime4;
  if (size >= 4) {
    hash = Rotate(hash ^ (DecodeFixed32(p) * kPrime1), 23) * kPrime2 + kPrime3;
    p += 4;
    size -= 4;
  }
  for (; size > 0; --size, ++p) hash = Rotate(hash ^ (*p * kPrime5), 11) * kPrime1;
  hash ^= hash >> 33;
  hash *= kPrime2;
  hash ^= hash >> 29;
  hash *= kPrime3;
  return hash ^ (hash >> 32);
}

}  // namespace elasticctr
