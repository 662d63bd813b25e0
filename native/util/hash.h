// Hashes that reach disk or other machines. docs/formats/feature-hash.md is their specification and holds
// golden vectors; changing a result here breaks every stored model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace elasticctr {

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
