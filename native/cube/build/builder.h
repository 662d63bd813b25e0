// Rows in any order → one cube file per shard, within a memory budget.
//
// Rows are distributed to partitions by (shard, range of places). Partitions stay in memory until the budget is used
// up; then all of them are appended to a run file. At the end each partition is read back, sorted and streamed into its
// shard's writer; several threads sort partitions ahead of the writing thread.
//
// The last row of a repeated feasign wins. Add and AddGone are called from one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cube/index/format.h"

namespace elasticctr::cube {

struct BuilderOptions {
  IndexInfo info;             // what the files have in common; shard, rows and tombstones are ignored
  std::string run_directory;  // for run files; they are removed at the end
  uint64_t memory_bytes = uint64_t{1} << 30;
  uint64_t expected_rows = 0;  // 0: unknown
  unsigned threads = 1;
  bool is_chain = false;  // builds a base from a base and its deltas in order: gone feasigns only remove earlier rows
};

struct BuilderResult {
  std::vector<IndexInfo> files;  // one per shard
  uint64_t duplicates = 0;       // rows and tombstones that were replaced by a later entry of their feasign
  uint64_t run_bytes = 0;        // written to run files
};

class Builder {
 public:
  // Throws ConfigError for invalid options.
  explicit Builder(const BuilderOptions& options);
  ~Builder();
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  uint32_t row_bytes() const;
  // Adds n rows of row_bytes().
  void Add(const uint64_t* feasigns, const uint8_t* rows, size_t n);
  // Adds feasigns without a row any more. Throws FailedPrecondition for a base that is not built from a chain.
  void AddGone(const uint64_t* feasigns, size_t n);
  // Writes one file per shard. REQUIRES: as many paths as shards; called once. The files are not synced.
  BuilderResult Finish(const std::vector<std::string>& paths);

  // The number of entries that Finish has sorted so far. Any thread.
  uint64_t progress() const;

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

}  // namespace elasticctr::cube
