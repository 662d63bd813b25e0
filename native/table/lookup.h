// The distinct feasigns of a batch and where each occurs: find, pull and push iterate over it. A pure function of the
// batch, so another thread can make it ahead of time; Table::Find then writes each feasign's row into it.
//
// Only slots of one table are included. Their occurrences are numbered in (slot, sample, position) order, and a bag
// (the values of one sample in one slot) is slot * samples + sample, slots counted from 0 in the order given. Sums over
// a feasign's occurrences are taken in that order, whatever the number of threads.
//
// Threads: building uses thread-local scratch and no shared state. A Lookup is not synchronised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "table/buffer.h"

namespace elasticctr {

class Lookup {
 public:
  // values and offsets as in a batch: the values of sample i in slot s of the batch are
  // values[offsets[s * samples + i] : offsets[s * samples + i + 1]]. `slots` are slot numbers of the batch.
  // Throws Error(kData) if offsets contradict values. Keeps no reference to its arguments.
  Lookup(std::span<const uint64_t> values, std::span<const int32_t> offsets, size_t samples,
         std::span<const uint32_t> slots);

  size_t samples() const { return samples_; }
  size_t slots() const { return slots_; }
  size_t occurrences() const { return occurrences_; }
  size_t distinct() const { return distinct_; }

  // Every bag holds exactly one value: occurrence numbers are bag numbers.
  bool is_single_valued() const { return is_single_valued_; }

  const uint64_t* feasigns() const { return feasigns_.data(); }  // [distinct], by first occurrence
  const uint32_t* inverse() const { return inverse_.data(); }    // [occurrences] its place in feasigns
  // Occurrences of the i-th feasign: order()[starts()[i] : starts()[i + 1]], ascending.
  const uint32_t* starts() const { return starts_.data(); }  // [distinct + 1]
  const uint32_t* order() const { return order_.data(); }    // [occurrences]
  // Occurrences of bag b: [bag_starts()[b], bag_starts()[b + 1]). REQUIRES: !is_single_valued().
  const uint32_t* bag_starts() const { return bag_starts_.data(); }  // [slots * samples + 1]
  uint32_t BagSize(size_t bag) const { return is_single_valued_ ? 1 : bag_starts_[bag + 1] - bag_starts_[bag]; }
  const uint32_t* bags() const { return bags_.data(); }  // [occurrences] the bag of each

  // Rows found by Table::Find, 0 for a feasign without one, and the table and state they are valid for.
  uint32_t* rows() { return rows_.data(); }
  const uint32_t* rows() const { return rows_.data(); }
  void SetFound(const void* table, uint64_t generation) { table_ = table, generation_ = generation; }
  bool IsFoundIn(const void* table, uint64_t generation) const { return table_ == table && generation_ == generation; }

 private:
  void Deduplicate(const uint64_t* values, std::span<const int32_t> offsets, std::span<const uint32_t> slots);
  void NumberBags(std::span<const int32_t> offsets, std::span<const uint32_t> slots);
  void SortOccurrences(const uint32_t* ranks);

  size_t samples_ = 0;
  size_t slots_ = 0;
  size_t occurrences_ = 0;
  size_t distinct_ = 0;
  bool is_single_valued_ = false;
  Buffer<uint64_t> feasigns_;
  Buffer<uint32_t> inverse_, starts_, order_, bag_starts_, bags_, rows_;
  const void* table_ = nullptr;
  uint64_t generation_ = 0;
};

}  // namespace elasticctr
