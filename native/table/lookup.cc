#include "table/lookup.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <string>

#include "util/status.h"
#include "util/target.h"

namespace elasticctr {
namespace {

constexpr uint64_t kMaxBags = std::numeric_limits<uint32_t>::max();
constexpr size_t kMinBuckets = 1024;
constexpr ptrdiff_t kAhead = 12;  // values whose place is being prefetched
// Places per feasign. A place has 4 bytes, so a sparse index is still small, and most searches end at their first
// place.
constexpr size_t kSparseness = 4;

// One multiplication is enough for a table that lives for one batch.
inline uint64_t Scatter(uint64_t feasign) {
  const uint64_t product = feasign * 0xD6E8FEB86659FD93ULL;
  return product ^ (product >> 32);
}

// Open addressing over positions in `feasigns`, counted from 1; a free place holds 0. Kept per thread: the size for one
// batch usually fits the next.
struct Scratch {
  Buffer<uint32_t> places;
  size_t buckets = kMinBuckets;
  Buffer<uint64_t> feasigns;
  Buffer<uint32_t> counts;
  Buffer<uint32_t> ranks;

  void Clear() { std::memset(places.Reserve(buckets), 0, buckets * sizeof(uint32_t)); }

  void Grow(uint32_t count) {
    buckets *= 4;
    Clear();
    const size_t mask = buckets - 1;
    for (uint32_t i = 1; i <= count; ++i) {
      size_t place = Scatter(feasigns[i]) & mask;
      while (places[place] != 0) place = (place + 1) & mask;
      places[place] = i;
    }
  }
};

Scratch& ThreadScratch() {
  thread_local Scratch scratch;
  return scratch;
}

ELASTICCTR_CLONES bool IsIota(const int32_t* offsets, size_t count) {
  int32_t differences = 0;
  for (size_t i = 0; i < count; ++i) differences |= offsets[i] - offsets[0] - static_cast<int32_t>(i);
  return differences == 0;
}

}  // namespace

Lookup::Lookup(std::span<const uint64_t> values, std::span<const int32_t> offsets, size_t samples,
               std::span<const uint32_t> slots)
    : samples_(samples), slots_(slots.size()) {
  if (offsets.empty() || (samples > 0 && (offsets.size() - 1) % samples != 0) ||
      (samples == 0 && offsets.size() != 1)) {
    throw Error(Code::kData, "a batch of " + std::to_string(samples) + " samples cannot have " +
                                 std::to_string(offsets.size()) + " offsets");
  }
  if (slots_ * samples >= kMaxBags) throw Error(Code::kData, "a batch of over 2^32 bags; make batches smaller");
  is_single_valued_ = true;
  for (const uint32_t slot : slots) {
    if (samples > 0 && slot >= (offsets.size() - 1) / samples) {
      throw Error(Code::kData, "slot " + std::to_string(slot) + " is not in the batch");
    }
    const int32_t* slot_offsets = offsets.data() + slot * samples;
    if (IsIota(slot_offsets, samples + 1)) {
      occurrences_ += samples;
    } else {
      is_single_valued_ = false;
      if (!std::is_sorted(slot_offsets, slot_offsets + samples + 1)) {
        throw Error(Code::kData, "offsets of slot " + std::to_string(slot) + " go backwards");
      }
      occurrences_ += static_cast<size_t>(slot_offsets[samples] - slot_offsets[0]);
    }
    if (slot_offsets[0] < 0 || static_cast<size_t>(slot_offsets[samples]) > values.size()) {
      throw Error(Code::kData, "offsets of slot " + std::to_string(slot) + " point outside the values");
    }
  }
  Deduplicate(values.data(), offsets, slots);
  if (!is_single_valued_) NumberBags(offsets, slots);
}

void Lookup::Deduplicate(const uint64_t* values, std::span<const int32_t> offsets, std::span<const uint32_t> slots) {
  Scratch& scratch = ThreadScratch();
  uint64_t* const feasigns = scratch.feasigns.Reserve(occurrences_ + 1);
  uint32_t* const counts = scratch.counts.Reserve(occurrences_ + 2);
  uint32_t* const ranks = scratch.ranks.Reserve(occurrences_);
  uint32_t* const inverse = inverse_.Reserve(occurrences_);
  scratch.Clear();
  uint32_t* places = scratch.places.data();
  size_t mask = scratch.buckets - 1;
  uint32_t distinct = 0;
  size_t occurrence = 0;
  counts[1] = 0;
  for (const uint32_t slot : slots) {
    const uint64_t* value = values + offsets[slot * samples_];
    const uint64_t* const end = values + offsets[(slot + 1) * samples_];
    for (; value != end; ++value, ++occurrence) {
      if (end - value > kAhead) __builtin_prefetch(places + (Scatter(value[kAhead]) & mask));
      // Whether a feasign is new is unpredictable, so the code does not branch on it: position 0 holds the value itself
      // and ends a search at a free place like a match, and the data of a new feasign is written every time.
      feasigns[0] = *value;
      size_t place = Scatter(*value) & mask;
      uint32_t found;
      while (feasigns[found = places[place]] != *value) place = (place + 1) & mask;
      const uint32_t is_new = found == 0;
      found += (distinct + 1) & (0u - is_new);
      distinct += is_new;
      places[place] = found;
      feasigns[found] = *value;
      counts[distinct + 1] = 0;
      inverse[occurrence] = found - 1;
      ranks[occurrence] = counts[found]++;
      if (distinct > mask / 2) {
        scratch.Grow(distinct);
        places = scratch.places.data();
        mask = scratch.buckets - 1;
      }
    }
  }
  distinct_ = distinct;
  scratch.buckets = std::max(kMinBuckets, std::bit_ceil(distinct * kSparseness * 3 / 4));
  std::memcpy(feasigns_.Reserve(distinct), feasigns + 1, distinct * sizeof(uint64_t));
  rows_.Reserve(distinct);
  uint32_t* const starts = starts_.Reserve(distinct + 1);
  uint32_t sum = 0;
  for (size_t i = 0; i < distinct; ++i) {
    starts[i] = sum;
    sum += counts[i + 1];
  }
  starts[distinct] = sum;
  SortOccurrences(ranks);
}

void Lookup::SortOccurrences(const uint32_t* ranks) {
  uint32_t* const order = order_.Reserve(occurrences_);
  const uint32_t* const starts = starts_.data();
  const uint32_t* const inverse = inverse_.data();
  for (size_t i = 0; i < occurrences_; ++i) order[starts[inverse[i]] + ranks[i]] = static_cast<uint32_t>(i);
}

void Lookup::NumberBags(std::span<const int32_t> offsets, std::span<const uint32_t> slots) {
  uint32_t* const starts = bag_starts_.Reserve(slots_ * samples_ + 1);
  uint32_t* const bags = bags_.Reserve(occurrences_);
  uint32_t occurrence = 0;
  uint32_t bag = 0;
  for (const uint32_t slot : slots) {
    const int32_t* slot_offsets = offsets.data() + slot * samples_;
    for (size_t i = 0; i < samples_; ++i, ++bag) {
      starts[bag] = occurrence;
      for (int32_t k = slot_offsets[i]; k < slot_offsets[i + 1]; ++k) bags[occurrence++] = bag;
    }
  }
  starts[bag] = occurrence;
}

}  // namespace elasticctr
