// How many batches of each chunk a pserver has applied.
//
// Usually one number per chunk. After a load from another number of pservers, whose files may be from different
// moments, parts of the shard may have applied more batches of a chunk than others. Those parts are ahead, and skip the
// batches they have until the rest has caught up.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "ps/wire/frames.h"

namespace elasticctr::ps {

class Cursors {
 public:
  static constexpr uint32_t kOver = UINT32_MAX;  // the cursor of a chunk that was dropped

  // The cursor of the part that has applied least.
  uint32_t Get(uint64_t chunk) const;
  void Move(uint64_t chunk, uint32_t to);
  // Chunks below this number are finished and dropped.
  void Forget(uint64_t below);
  uint64_t forgotten() const { return forgotten_; }

  // Parts that have already applied batch `from` of the chunk.
  std::vector<Share> Ahead(uint64_t chunk, uint32_t from) const;

  // Chunk and cursor, by chunk.
  std::map<uint64_t, uint32_t> Sorted() const { return {applied_.begin(), applied_.end()}; }
  size_t size() const { return applied_.size(); }

  // The cursors of a saved pserver, and the part that was taken from it.
  struct Part {
    Share share;
    uint64_t forgotten = 0;
    std::map<uint64_t, uint32_t> applied;
    std::map<uint64_t, std::vector<std::pair<Share, uint32_t>>> ahead;
  };
  // Replaces everything.
  void Restore(const std::vector<Part>& parts);
  const std::map<uint64_t, std::vector<std::pair<Share, uint32_t>>>& ahead() const { return ahead_; }

 private:
  std::unordered_map<uint64_t, uint32_t> applied_;
  std::map<uint64_t, std::vector<std::pair<Share, uint32_t>>> ahead_;
  uint64_t forgotten_ = 0;
};

}  // namespace elasticctr::ps
