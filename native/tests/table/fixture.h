// Tables and batches for the table tests.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "table/table.h"

namespace elasticctr {

inline TableSettings MakeSettings(OptimizerKind kind = OptimizerKind::kAdam, uint32_t dim = 9, bool counters = true) {
  TableSettings settings;
  settings.name = "main";
  settings.counters = counters;
  SegmentSettings linear{"linear", 1, {}, {}};
  linear.optimizer.kind = OptimizerKind::kFtrl;
  linear.optimizer.l1 = 0.01f;
  SegmentSettings embedding{"embedding", dim, {}, {InitializerKind::kUniform, -0.1f, 0.1f}};
  embedding.optimizer.kind = kind;
  settings.segments = {linear, embedding};
  return settings;
}

// `slots` slots of up to `longest` values per sample; feasigns below `vocabulary`, some of them extreme.
struct RandomBatch {
  RandomBatch(uint64_t seed, size_t samples, uint32_t slots, int longest, uint64_t vocabulary) : samples(samples) {
    std::mt19937_64 rng(seed);
    offsets.push_back(0);
    for (size_t bag = 0; bag < samples * slots; ++bag) {
      const size_t length = longest == 1 ? 1 : rng() % static_cast<uint64_t>(longest + 1);
      for (size_t i = 0; i < length; ++i) values.push_back(rng() % 64 == 0 ? ~(rng() % 3) : rng() % vocabulary);
      offsets.push_back(static_cast<int32_t>(values.size()));
    }
    for (uint32_t s = 0; s < slots; ++s) slot_numbers.push_back(s);
  }

  Lookup MakeLookup() const { return Lookup(values, offsets, samples, slot_numbers); }

  size_t samples;
  std::vector<uint64_t> values;
  std::vector<int32_t> offsets;
  std::vector<uint32_t> slot_numbers;
};

// Linear weights of all slots first, then embeddings; every third slot is a mean.
inline Layout MakeLayout(uint32_t slots, uint32_t dim) {
  std::vector<SlotTarget> targets;
  for (uint32_t s = 0; s < slots; ++s) {
    const auto columns = {static_cast<int32_t>(s), static_cast<int32_t>(slots + s * dim)};
    targets.push_back({s, 0, s % 3 == 2 ? PoolingKind::kMean : PoolingKind::kSum, columns, 0});
  }
  return Layout(targets, {1, dim});
}

inline Target MakeTarget(std::vector<float>* data, size_t samples) {
  const size_t width = data->size() / samples;
  return {data->data(), samples, 0, width, width, 0};
}

// Trains a table on `steps` random batches, from batch number `first` on.
inline void Train(Table* table, uint32_t dim, uint64_t first, uint64_t steps, uint64_t vocabulary = 5000,
                  int longest = 3) {
  constexpr size_t kSamples = 200;
  constexpr uint32_t kSlots = 4;
  const Layout layout = MakeLayout(kSlots, dim);
  for (uint64_t step = first; step < first + steps; ++step) {
    const RandomBatch batch(step, kSamples, kSlots, longest, vocabulary);
    Lookup lookup = batch.MakeLookup();
    table->Find(&lookup, true);
    std::vector<float> flat(kSamples * kSlots * (dim + 1));
    table->Pull(lookup, layout, {MakeTarget(&flat, kSamples)});
    for (size_t i = 0; i < flat.size(); ++i) flat[i] += 0.01f * static_cast<float>(i % 7) - 0.03f;
    PushSamples samples;
    samples.now = static_cast<uint32_t>(step);
    table->Push(lookup, layout, {MakeTarget(&flat, kSamples)}, samples);
  }
}

// All rows, for comparing tables.
inline std::vector<float> AllWeights(const Table& table, std::vector<uint64_t>* feasigns) {
  std::vector<float> weights;
  std::vector<Counters> counters;
  table.Export(0, 4096, SIZE_MAX, 0, feasigns, &weights, &counters);
  return weights;
}

}  // namespace elasticctr
