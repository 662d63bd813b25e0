// Converts columns in Arrow's layout (each slot's values and offsets in arrays of their own) to hashes and bags. CSV,
// Parquet and cached sample sets use this.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "sample/bags.h"

namespace elasticctr {

// out[i] = the feature hash of data[offsets[i] : offsets[i + 1]]. REQUIRES: out holds offsets.size() - 1. Offsets that
// decrease or exceed `data` throw kCorruption.
void HashStrings(std::span<const int32_t> offsets, std::string_view data, uint64_t slot_seed, uint64_t* out);

// The XXH64 with `seed` of every line of `text`, without its line end: a split by fraction decides by these.
std::vector<uint64_t> HashLines(std::string_view text, uint64_t seed);

// Samples without text, hashed by content.
struct RowsView {
  std::span<const float> labels, dense;  // [n, anything], row after row
  std::span<const float> weights;        // [n]
  BagsView bags;
};

// out[i] = XXH64 of labels, dense, weight and each slot's values of sample i, each seeded with the previous hash.
void HashRows(const RowsView& rows, uint64_t seed, uint64_t* out);

// One slot of n samples. `offsets` need not start at 0.
struct BagColumn {
  std::span<const uint64_t> values;
  std::span<const int32_t> offsets;  // [n + 1]
};

// The samples [start, stop) of several slots, joined. REQUIRES: start <= stop <= n.
Bags SliceColumns(const std::vector<BagColumn>& columns, size_t start, size_t stop);

}  // namespace elasticctr
