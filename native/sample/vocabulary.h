// Exact counts of feasigns, and the set of those that deserve a row. Used before training (elasticctr data vocabulary)
// and during lookups: a feasign outside the set is replaced by its slot's catch-all feasign.
//
// Threads: a counter is used by one thread at a time; a set never changes and any number of threads may read it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace elasticctr {

class FeasignCounter {
 public:
  void Add(std::span<const uint64_t> feasigns);
  // Distinct feasigns seen so far.
  size_t size() const { return size_ + (zero_ > 0); }
  uint64_t total() const { return total_; }
  // Those seen at least `min_count` times, ascending.
  std::vector<uint64_t> Take(uint32_t min_count) const;

 private:
  struct Entry {
    uint64_t feasign = 0;  // 0: free
    uint32_t count = 0;    // stops at 2^32 - 1
  };

  void Grow();
  Entry& Find(uint64_t feasign);

  std::vector<Entry> entries_;
  size_t size_ = 0;
  uint64_t total_ = 0;
  uint32_t zero_ = 0;  // of feasign 0
};

class FeasignSet {
 public:
  explicit FeasignSet(std::span<const uint64_t> feasigns);

  bool Has(uint64_t feasign) const;
  // Replaces every value outside the set by `other`; returns how many it replaced.
  size_t Replace(std::span<uint64_t> values, uint64_t other) const;
  size_t size() const { return size_; }

 private:
  std::vector<uint64_t> places_;  // 0: free
  size_t size_ = 0;
  bool has_zero_ = false;
};

}  // namespace elasticctr
