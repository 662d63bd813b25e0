#include "sample/vocabulary.h"

#include <algorithm>
#include <bit>

#include "util/hash.h"

namespace elasticctr {
namespace {

constexpr size_t kMinPlaces = 1024;

// At most half of the places are used, so that searches are short.
size_t PlacesFor(size_t count) { return std::max(kMinPlaces, std::bit_ceil(count * 2)); }

}  // namespace

FeasignCounter::Entry& FeasignCounter::Find(uint64_t feasign) {
  const size_t mask = entries_.size() - 1;
  size_t at = Mix64(feasign) & mask;
  while (entries_[at].feasign != 0 && entries_[at].feasign != feasign) at = (at + 1) & mask;
  return entries_[at];
}

void FeasignCounter::Grow() {
  std::vector<Entry> old(PlacesFor(size_ + 1));
  old.swap(entries_);
  for (const Entry& entry : old) {
    if (entry.feasign != 0) Find(entry.feasign) = entry;
  }
}

void FeasignCounter::Add(std::span<const uint64_t> feasigns) {
  total_ += feasigns.size();
  for (const uint64_t feasign : feasigns) {
    if (feasign == 0) {
      zero_ += zero_ != ~0u;
      continue;
    }
    if (2 * (size_ + 1) > entries_.size()) Grow();
    Entry& entry = Find(feasign);
    size_ += entry.feasign == 0;
    entry.feasign = feasign;
    entry.count += entry.count != ~0u;
  }
}

std::vector<uint64_t> FeasignCounter::Take(uint32_t min_count) const {
  std::vector<uint64_t> kept;
  if (zero_ > 0 && zero_ >= min_count) kept.push_back(0);
  for (const Entry& entry : entries_) {
    if (entry.feasign != 0 && entry.count >= min_count) kept.push_back(entry.feasign);
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

FeasignSet::FeasignSet(std::span<const uint64_t> feasigns) : places_(PlacesFor(feasigns.size())) {
  const size_t mask = places_.size() - 1;
  for (const uint64_t feasign : feasigns) {
    if (feasign == 0) {
      size_ += !has_zero_;
      has_zero_ = true;
      continue;
    }
    size_t at = Mix64(feasign) & mask;
    while (places_[at] != 0 && places_[at] != feasign) at = (at + 1) & mask;
    size_ += places_[at] == 0;
    places_[at] = feasign;
  }
}

bool FeasignSet::Has(uint64_t feasign) const {
  if (feasign == 0) return has_zero_;
  const size_t mask = places_.size() - 1;
  size_t at = Mix64(feasign) & mask;
  while (places_[at] != 0 && places_[at] != feasign) at = (at + 1) & mask;
  return places_[at] == feasign;
}

size_t FeasignSet::Replace(std::span<uint64_t> values, uint64_t other) const {
  size_t replaced = 0;
  for (uint64_t& value : values) {
    if (Has(value)) continue;
    value = other;
    ++replaced;
  }
  return replaced;
}

}  // namespace elasticctr
