// Feasigns seen but not admitted yet, with their counts: the side map of admission by count. 10 bytes per slot of the
// map.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "util/hash.h"

namespace elasticctr {

class Pending {
 public:
  size_t size() const { return size_; }
  size_t bytes() const { return feasigns_.size() * (sizeof(uint64_t) + sizeof(uint16_t)); }

  // Adds to a feasign's count and returns it. A feasign that reaches `enough` is forgotten here.
  uint32_t Count(uint64_t feasign, uint32_t occurrences, uint32_t enough) {
    if ((size_ + 1) * 4 > feasigns_.size() * 3) Grow();
    size_t place = Search(feasign);
    const uint32_t before = counts_[place];
    // A loaded count may exceed a threshold that was lowered since.
    const uint32_t count = before >= enough || occurrences >= enough - before ? enough : before + occurrences;
    if (count < enough) {
      feasigns_[place] = feasign;
      counts_[place] = static_cast<uint16_t>(count);
      if (before == 0) ++size_;
    } else if (before != 0) {
      Remove(place);
    }
    return count;
  }

  // Sets a count, as loaded from a file. A count of 0 is not kept.
  void Put(uint64_t feasign, uint16_t count) {
    if (count == 0) return;
    if ((size_ + 1) * 4 > feasigns_.size() * 3) Grow();
    const size_t place = Search(feasign);
    if (counts_[place] == 0) ++size_;
    feasigns_[place] = feasign;
    counts_[place] = count;
  }

  // Calls fn(feasign, count) for all, in no meaningful order but the same one for the same history.
  template <typename Fn>
  void ForEach(Fn&& fn) const {
    for (size_t i = 0; i < feasigns_.size(); ++i) {
      if (counts_[i] != 0) fn(feasigns_[i], counts_[i]);
    }
  }

  void Clear() { *this = Pending(); }

 private:
  size_t Home(uint64_t feasign) const { return (Mix64(feasign) >> 8) & (feasigns_.size() - 1); }

  // The feasign's position, or where it would be inserted.
  size_t Search(uint64_t feasign) const {
    size_t place = Home(feasign);
    while (counts_[place] != 0 && feasigns_[place] != feasign) place = (place + 1) & (feasigns_.size() - 1);
    return place;
  }

  // Moves later feasigns of the same run back, so that searches need no tombstones.
  void Remove(size_t place) {
    const size_t mask = feasigns_.size() - 1;
    for (size_t next = (place + 1) & mask; counts_[next] != 0; next = (next + 1) & mask) {
      if (((next - Home(feasigns_[next])) & mask) >= ((next - place) & mask)) {
        feasigns_[place] = feasigns_[next];
        counts_[place] = counts_[next];
        place = next;
      }
    }
    counts_[place] = 0;
    --size_;
  }

  void Grow() {
    Pending larger;
    larger.feasigns_.resize(feasigns_.empty() ? 16 : feasigns_.size() * 2);
    larger.counts_.resize(larger.feasigns_.size());
    larger.size_ = size_;
    ForEach([&](uint64_t feasign, uint16_t count) {
      const size_t place = larger.Search(feasign);
      larger.feasigns_[place] = feasign;
      larger.counts_[place] = count;
    });
    *this = std::move(larger);
  }

  std::vector<uint64_t> feasigns_;
  std::vector<uint16_t> counts_;  // 0: the place is free
  size_t size_ = 0;
};

}  // namespace elasticctr
