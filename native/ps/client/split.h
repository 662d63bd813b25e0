// Distinct feasigns grouped by the pserver that owns them: those of pserver s are order()[start(s)] and the next
// count(s) - 1, in the order they were given; feasign i has position places()[i] in that grouping.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "table/buffer.h"
#include "util/hash.h"

namespace elasticctr::ps {

class Split {
 public:
  // REQUIRES: 1 <= shards <= kBuckets.
  void Make(std::span<const uint64_t> feasigns, uint32_t shards) {
    is_whole_ = shards == 1;
    starts_.assign(shards + 1, 0);
    starts_[shards] = feasigns.size();
    if (is_whole_) return;
    uint16_t* const owners = owners_.Reserve(feasigns.size());
    std::vector<size_t> next(shards + 1);
    for (size_t i = 0; i < feasigns.size(); ++i) {
      owners[i] = static_cast<uint16_t>(ShardOf(feasigns[i], shards));
      ++next[owners[i] + 1];
    }
    for (uint32_t s = 0; s < shards; ++s) starts_[s] = next[s] += s == 0 ? 0 : next[s - 1];
    uint32_t* const order = order_.Reserve(feasigns.size());
    uint32_t* const places = places_.Reserve(feasigns.size());
    for (size_t i = 0; i < feasigns.size(); ++i) {
      const size_t place = next[owners[i]]++;
      order[place] = static_cast<uint32_t>(i);
      places[i] = static_cast<uint32_t>(place);
    }
  }

  size_t start(uint32_t shard) const { return starts_[shard]; }
  size_t count(uint32_t shard) const { return starts_[shard + 1] - starts_[shard]; }
  // Null with one pserver: the given order.
  const uint32_t* order() const { return is_whole_ ? nullptr : order_.data(); }
  const uint32_t* places() const { return is_whole_ ? nullptr : places_.data(); }

  // Writes the elements of one pserver's feasigns, `width` each, and returns the end.
  template <typename T>
  uint8_t* Gather(uint32_t shard, const T* from, size_t width, uint8_t* out) const {
    const size_t bytes = width * sizeof(T);
    if (is_whole_) {
      if (count(shard) != 0) std::memcpy(out, from, count(shard) * bytes);
      return out + count(shard) * bytes;
    }
    for (size_t k = starts_[shard]; k < starts_[shard + 1]; ++k, out += bytes) {
      std::memcpy(out, from + order_[k] * width, bytes);
    }
    return out;
  }

 private:
  bool is_whole_ = true;
  std::vector<size_t> starts_;
  Buffer<uint32_t> order_, places_;
  Buffer<uint16_t> owners_;
};

}  // namespace elasticctr::ps
