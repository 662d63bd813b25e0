// Hashes that are stored on disk or sent to other machines. docs/formats/feature-hash.md specifies them and lists
// golden vectors; changing a result here breaks every stored model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "util/coding.h"

namespace elasticctr {

// The steps of XXH64. They are in the header because most hashed values are a few bytes long and a call would cost as
// much.
namespace xxh {

inline constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87ULL;
inline constexpr uint64_t kPrime2 = 0xC2B2AE3D27D4EB4FULL;
inline constexpr uint64_t kPrime3 = 0x165667B19E3779F9ULL;
inline constexpr uint64_t kPrime4 = 0x85EBCA77C2B2AE63ULL;
inline constexpr uint64_t kPrime5 = 0x27D4EB2F165667C5ULL;

inline uint64_t Rotate(uint64_t x, int bits) { return (x << bits) | (x >> (64 - bits)); }

inline uint64_t Round(uint64_t lane, uint64_t input) { return Rotate(lane + input * kPrime2, 31) * kPrime1; }

inline uint64_t Mix8(uint64_t hash, uint64_t input) { return Rotate(hash ^ Round(0, input), 27) * kPrime1 + kPrime4; }

inline uint64_t Avalanche(uint64_t hash) {
  hash ^= hash >> 33;
  hash *= kPrime2;
  hash ^= hash >> 29;
  hash *= kPrime3;
  return hash ^ (hash >> 32);
}

}  // namespace xxh

// XXH64 of `size` bytes, as published (github.com/Cyan4973/xxHash, doc/xxhash_spec.md).
uint64_t Xxh64(const void* data, size_t size, uint64_t seed);

// The feasign of a string value in a slot: XXH64(bytes, seed = XXH64(slot name, hash_seed)).
// SlotSeed is computed once per slot, FeatureHash once per value.
inline uint64_t SlotSeed(std::string_view slot, uint64_t hash_seed) {
  return Xxh64(slot.data(), slot.size(), hash_seed);
}
inline uint64_t FeatureHash(std::string_view value, uint64_t slot_seed) {
  return Xxh64(value.data(), value.size(), slot_seed);
}

// FeatureHash of the eight bytes that are `value` in memory.
inline uint64_t FeatureHash8(uint64_t value, uint64_t slot_seed) {
  return xxh::Avalanche(xxh::Mix8(slot_seed + xxh::kPrime5 + 8, value));
}

// An invertible mixer of all 64 bits (the SplitMix64 finaliser). Feasigns are often small integers, so
// everything that distributes them (shards, index buckets, initial values) mixes first.
inline uint64_t Mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ULL;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

// Feasigns fall into a fixed number of buckets by the top bits of Mix64; shards own contiguous ranges of
// buckets, so changing the number of shards moves whole buckets. In-shard indexes use the lower bits.
inline constexpr uint32_t kBucketBits = 12;
inline constexpr uint32_t kBuckets = 1u << kBucketBits;

inline uint32_t BucketOf(uint64_t feasign) { return static_cast<uint32_t>(Mix64(feasign) >> (64 - kBucketBits)); }

// REQUIRES: 1 <= shards <= kBuckets.
inline uint32_t ShardOf(uint64_t feasign, uint32_t shards) { return BucketOf(feasign) * shards >> kBucketBits; }

}  // namespace elasticctr
