// One table's part of a call: which feasigns are sent to which shard, and where the returned rows belong. Independent
// of sockets, versions and failures.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cube/client/exchange.h"
#include "cube/client/hot_cache.h"
#include "cube/index/index.h"

namespace elasticctr::cube {

// The shape of one table's rows in one version.
struct RowShape {
  Encoding encoding;
  Sharding sharding;
  uint32_t dim;
  uint32_t row_bytes;
  bool operator==(const RowShape&) const = default;

  // Bytes of one row as returned to the caller: floats, or raw bytes.
  size_t out_bytes() const { return encoding == Encoding::kRaw ? row_bytes : 4 * size_t{dim}; }
};

class Gather {
 public:
  struct Ask {
    const uint64_t* feasigns;
    size_t count;
    uint64_t table;  // its hash
    uint64_t version;
    RowShape shape;
    bool merge_repeats;  // send a repeated feasign only once
    HotCache* cache;     // or null
    uint64_t cached_as;  // the table's number in the cache: a new one after a version was replaced
  };

  // Appends the frames to send to `legs`, at most max_keys[shard] feasigns each. Feasigns must stay valid until
  // Collect.
  void Plan(const Ask& ask, std::span<const uint64_t> max_keys, std::vector<Leg>* legs);
  size_t first_leg() const { return first_leg_; }
  size_t leg_count() const { return bases_.size(); }

  // Puts the rows of answered legs in their places; those of unanswered ones are zeros and not found.
  // REQUIRES: `legs` is the vector Plan appended to, after Exchange::Run.
  void Collect(std::span<const Leg> legs);

  // Call after Collect (or after Plan, if it appended nothing).
  std::unique_ptr<uint8_t[]> TakeRows() { return std::move(rows_); }
  std::unique_ptr<bool[]> TakeFound() { return std::move(found_); }
  size_t hits() const { return hits_; }  // from the cache
  size_t repeats() const { return repeats_.size(); }
  size_t sent() const { return sent_; }
  size_t missing() const { return missing_; }
  size_t unanswered() const { return unanswered_; }

 private:
  void AskCache();
  void MergeRepeats();
  void Partition(std::span<const uint64_t> max_keys, std::vector<Leg>* legs);
  void AddLegs(uint32_t shard, const uint64_t* keys, size_t base, size_t count, uint64_t max_keys,
               std::vector<Leg>* legs);
  void Place(size_t i, const uint8_t* row, bool is_found);
  void PlaceNothing(size_t leg, size_t count);

  struct Repeat {
    uint32_t at, first;
  };

  Ask ask_;
  std::unique_ptr<uint8_t[]> rows_;
  std::unique_ptr<bool[]> found_;
  bool is_everything_ = true;     // wanted_ is every position and left empty
  std::vector<uint32_t> wanted_;  // positions to request
  std::vector<Repeat> repeats_;   // positions that copy the row of another
  std::vector<uint32_t> slots_;   // hash table of MergeRepeats
  std::vector<uint64_t> keys_;    // as sent, shard after shard
  std::vector<uint32_t> places_;  // position of each of keys_; empty: its own
  std::vector<uint32_t> shards_;
  std::vector<size_t> starts_;
  std::vector<size_t> bases_;  // of each leg in keys_
  std::vector<uint8_t> row_;
  size_t first_leg_ = 0, hits_ = 0, sent_ = 0, missing_ = 0, unanswered_ = 0;
};

}  // namespace elasticctr::cube
