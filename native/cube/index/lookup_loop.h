// The loop of lookup.h, compiled once per instruction set. Before including it define LOOKUP_TARGET, the attribute that
// chooses the instructions. `Compare::Matches(bucket, feasign)` returns a bit per place of a bucket that holds the
// feasign.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>

#include "cube/index/lookup.h"
#include "util/status.h"

#define LOOKUP_INLINE LOOKUP_TARGET inline __attribute__((always_inline))

namespace elasticctr::cube {
namespace {

// Feasigns pass through three stages, a group at a time: find the bucket, find the row, copy the row. While one group
// is in a stage, the memory of the next group is being fetched, so a lookup costs bandwidth, not latency.
constexpr size_t kGroup = 16;
constexpr size_t kRing = 4;

struct Group {
  uint64_t mixed[kGroup];
  const uint8_t* rows[kGroup];  // null: not found
};

[[noreturn, gnu::noinline]] inline void FailDamaged() {
  throw Error(Code::kCorruption, "a cube file changed or was damaged after it was opened; open it with a full check");
}

enum class Probe : uint8_t { kMiss, kRow, kTombstone };

// Looks up one feasign in one layer.
template <typename Compare>
LOOKUP_INLINE Probe Ask(const Image& image, uint64_t feasign, uint64_t mixed, const uint8_t** row) {
  const Bucket* bucket = image.buckets + HomeOf(PlaceOfMixed(mixed), image.homes);
  unsigned matches = Compare::Matches(*bucket, feasign);
  while (matches == 0) {
    if (bucket->spilled == 0) return Probe::kMiss;
    if (++bucket == image.buckets + image.bucket_count) FailDamaged();
    matches = Compare::Matches(*bucket, feasign);
  }
  const unsigned before = (matches & -matches) - 1;  // the bits of the feasigns before it
  if ((bucket->dead & matches) != 0) return Probe::kTombstone;
  const uint64_t number = bucket->first_row() + static_cast<unsigned>(std::popcount(before & ~bucket->dead));
  if (number >= image.row_count) FailDamaged();
  *row = image.rows + number * image.row_bytes;
  return Probe::kRow;
}

// Stage 1: mixes, prefetches the buckets, and checks the shard. Returns non-zero if a feasign belongs to another shard.
LOOKUP_INLINE uint32_t Start(const Layers& layers, const uint64_t* feasigns, size_t n, Group* group) {
  uint32_t foreign = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint64_t mixed = Mix64(feasigns[i]);
    group->mixed[i] = mixed;
    if (layers.sharding == Sharding::kBuckets) {
      foreign |= (static_cast<uint32_t>(mixed >> (64 - kBucketBits)) * layers.shards >> kBucketBits) ^ layers.shard;
    } else {
      foreign |= static_cast<uint32_t>(feasigns[i] % layers.shards) ^ layers.shard;
    }
    for (size_t k = 0; k < layers.count; ++k) {
      const Image& image = layers.images[k];
      __builtin_prefetch(image.buckets + HomeOf(PlaceOfMixed(mixed), image.homes));
    }
  }
  return foreign;
}

// Stage 2: finds the rows and prefetches them.
template <typename Compare>
LOOKUP_INLINE void Resolve(const Layers& layers, const uint64_t* feasigns, size_t n, size_t row_bytes, Group* group) {
  for (size_t i = 0; i < n; ++i) {
    const uint8_t* row = nullptr;
    for (size_t k = 0; k < layers.count; ++k) {
      if (Ask<Compare>(layers.images[k], feasigns[i], group->mixed[i], &row) != Probe::kMiss) break;
    }
    group->rows[i] = row;
    if (row == nullptr) continue;
    for (size_t at = 0; at < std::min<size_t>(row_bytes, 1024); at += 64) __builtin_prefetch(row + at);
    __builtin_prefetch(row + row_bytes - 1);
  }
}

// Stage 3: copies rows. Sixteen found bits are written at once: REQUIRES `first` is a multiple of kGroup.
template <size_t kRowBytes>
LOOKUP_INLINE size_t Copy(const Group& group, size_t n, size_t row_bytes, uint8_t* to, uint8_t* found) {
  const size_t bytes = kRowBytes != 0 ? kRowBytes : row_bytes;
  unsigned bits = 0;
  for (size_t i = 0; i < n; ++i, to += bytes) {
    if (group.rows[i] != nullptr) {
      std::memcpy(to, group.rows[i], bytes);
      bits |= 1u << i;
    } else {
      std::memset(to, 0, bytes);
    }
  }
  for (size_t at = 0; at < n; at += 8) found[at / 8] = static_cast<uint8_t>(bits >> at);
  return static_cast<size_t>(std::popcount(bits));
}

template <typename Compare, size_t kRowBytes>
LOOKUP_INLINE LookupResult Run(const Layers& layers, const uint64_t* feasigns, size_t n, uint8_t* rows, uint8_t* found,
                               size_t* hits) {
  const size_t row_bytes = kRowBytes != 0 ? kRowBytes : layers.images[0].row_bytes;
  const size_t groups = (n + kGroup - 1) / kGroup;
  const auto size_of = [n](size_t g) { return std::min(kGroup, n - g * kGroup); };
  Group ring[kRing];
  size_t total = 0;
  uint32_t foreign = 0;
  for (size_t step = 0; step < groups + 2; ++step) {
    if (step < groups) foreign |= Start(layers, feasigns + step * kGroup, size_of(step), &ring[step % kRing]);
    if (step >= 1 && step - 1 < groups) {
      const size_t g = step - 1;
      Resolve<Compare>(layers, feasigns + g * kGroup, size_of(g), row_bytes, &ring[g % kRing]);
    }
    if (step >= 2) {
      const size_t g = step - 2;
      total += Copy<kRowBytes>(ring[g % kRing], size_of(g), row_bytes, rows + g * kGroup * row_bytes,
                               found + g * (kGroup / 8));
    }
  }
  *hits = total;
  return foreign == 0 ? LookupResult::kOk : LookupResult::kWrongShard;
}

template <typename Compare>
LOOKUP_INLINE LookupResult Dispatch(const Layers& layers, const uint64_t* feasigns, size_t n, uint8_t* rows,
                                    uint8_t* found, size_t* hits) {
  switch (layers.images[0].row_bytes) {
    case 4: return Run<Compare, 4>(layers, feasigns, n, rows, found, hits);
    case 12: return Run<Compare, 12>(layers, feasigns, n, rows, found, hits);
    case 16: return Run<Compare, 16>(layers, feasigns, n, rows, found, hits);
    case 20: return Run<Compare, 20>(layers, feasigns, n, rows, found, hits);
    case 32: return Run<Compare, 32>(layers, feasigns, n, rows, found, hits);
    case 36: return Run<Compare, 36>(layers, feasigns, n, rows, found, hits);
    case 40: return Run<Compare, 40>(layers, feasigns, n, rows, found, hits);
    case 44: return Run<Compare, 44>(layers, feasigns, n, rows, found, hits);
    case 64: return Run<Compare, 64>(layers, feasigns, n, rows, found, hits);
    case 68: return Run<Compare, 68>(layers, feasigns, n, rows, found, hits);
    case 128: return Run<Compare, 128>(layers, feasigns, n, rows, found, hits);
    case 256: return Run<Compare, 256>(layers, feasigns, n, rows, found, hits);
    default: return Run<Compare, 0>(layers, feasigns, n, rows, found, hits);
  }
}

}  // namespace
}  // namespace elasticctr::cube
