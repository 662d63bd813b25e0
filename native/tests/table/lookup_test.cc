// Lookups compared with std::unordered_map, on seeded random batches and on invalid offsets.

#include <unordered_map>

#include "tests/check.h"
#include "tests/table/fixture.h"
#include "util/status.h"

namespace elasticctr {
namespace {

void CheckAgainstMap(const RandomBatch& batch) {
  const Lookup lookup = batch.MakeLookup();
  std::unordered_map<uint64_t, std::vector<uint32_t>> reference;
  std::vector<uint64_t> by_first;
  for (uint32_t i = 0; i < batch.values.size(); ++i) {
    auto& occurrences = reference[batch.values[i]];
    if (occurrences.empty()) by_first.push_back(batch.values[i]);
    occurrences.push_back(i);
  }
  CHECK(lookup.occurrences() == batch.values.size());
  CHECK(lookup.distinct() == by_first.size());
  for (size_t i = 0; i < by_first.size(); ++i) {
    CHECK(lookup.feasigns()[i] == by_first[i]);
    const std::vector<uint32_t> order(lookup.order() + lookup.starts()[i], lookup.order() + lookup.starts()[i + 1]);
    CHECK(order == reference[by_first[i]]);
  }
  for (size_t i = 0; i < batch.values.size(); ++i) CHECK(lookup.feasigns()[lookup.inverse()[i]] == batch.values[i]);
  if (lookup.is_single_valued()) return;
  for (size_t bag = 0; bag + 1 < batch.offsets.size(); ++bag) {
    CHECK(lookup.bag_starts()[bag] == static_cast<uint32_t>(batch.offsets[bag]));
    for (int32_t i = batch.offsets[bag]; i < batch.offsets[bag + 1]; ++i) CHECK(lookup.bags()[i] == bag);
  }
}

bool IsRefused(std::vector<int32_t> offsets, size_t values, size_t samples, std::vector<uint32_t> slots) {
  const std::vector<uint64_t> data(values);
  try {
    Lookup lookup(data, offsets, samples, slots);
  } catch (const Error& e) {
    return e.code() == Code::kData;
  }
  return false;
}

// For any offsets, a lookup is refused or stays inside the values.
void FuzzOffsets() {
  std::mt19937_64 rng(7);
  for (int round = 0; round < 3000; ++round) {
    RandomBatch batch(round, 1 + rng() % 6, 3, 3, 50);
    for (uint64_t flips = rng() % 4; flips > 0; --flips) {
      batch.offsets[rng() % batch.offsets.size()] = static_cast<int32_t>(rng() % 40) - 5;
    }
    try {
      batch.MakeLookup();
    } catch (const Error& e) {
      CHECK(e.code() == Code::kData);
    }
  }
}

}  // namespace
}  // namespace elasticctr

int main() {
  using namespace elasticctr;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    CheckAgainstMap(RandomBatch(seed, 1 + seed * seed, 1 + seed % 5, 1 + static_cast<int>(seed % 4), 1 + seed * 97));
  }
  CheckAgainstMap(RandomBatch(1, 0, 3, 2, 5));
  CHECK(IsRefused({0, 2, 1}, 3, 2, {0}));
  CHECK(IsRefused({0, 1, 4}, 3, 2, {0}));
  CHECK(IsRefused({-1, 0, 1}, 3, 2, {0}));
  CHECK(IsRefused({0, 1, 2}, 3, 2, {1}));
  FuzzOffsets();
}
