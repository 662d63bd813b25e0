// A sparse table: u64 feasign -> row of weights, optimizer state and counters, with no fixed vocabulary.
//
// A training step is Find(insert) -> Pull -> Push on one Lookup. Rows are spread over 256 shards by the top bits
// of Mix64; work is split by shard, sample or feasign over ThreadPool::Default(), and results do not depend on
// the number of threads.
//
// If a segment's optimizer catches up (optimizer/optimizer.h), every read returns weights as of the table's last step:
// Find updates the rows it finds; the others compute the weights without changing the row.
//
// Threads: every function may be called from any thread. Functions that only read rows (Pull, Get, Export, Find without
// insert, GetStats) run concurrently; functions that change the table run alone, and so does every Find if rows catch
// up. Rows found stay valid until Evict, Erase or Load; a Lookup found before one of those is refused with
// FailedPrecondition.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <shared_mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "table/arena.h"
#include "table/index.h"
#include "table/initializer.h"
#include "table/layout.h"
#include "table/lookup.h"
#include "table/marks.h"
#include "table/optimizer/optimizer.h"
#include "table/pending.h"
#include "table/row.h"
#include "table/settings.h"
#include "util/file.h"

namespace elasticctr {

struct TableStats {
  uint64_t rows = 0;
  uint64_t row_bytes = 0;      // of all rows, with padding
  uint64_t payload_bytes = 0;  // of which weights and optimizer state
  uint64_t counter_bytes = 0;  // of which show, click and last-seen
  uint64_t index_bytes = 0;
  uint64_t pending = 0;  // feasigns counted but not admitted
  uint64_t pending_bytes = 0;
  uint64_t mark_bytes = 0;  // for tracking changed rows and dropped feasigns
  uint64_t steps = 0;
};

// Per-sample data of a push, other than the gradients. Null pointers: each show counts 1, no clicks.
struct PushSamples {
  const float* clicks = nullptr;  // [samples]
  size_t click_stride = 1;
  const float* shows = nullptr;  // [samples]
  size_t show_stride = 1;
  uint32_t now = 0;             // becomes last_seen: a day, an hour or a step, as the caller counts; below 2^31
  float rate_scale = 1.0f;      // multiplies every learning rate
  float gradient_scale = 1.0f;  // multiplies every summed gradient
};

// Gradients, or deltas, by feasign: what a pserver gets from trainers who summed them.
struct RowGradients {
  std::span<const uint64_t> feasigns;  // distinct
  const float* shows = nullptr;        // [n], with clicks; null: counters keep their values, except last-seen
  const float* clicks = nullptr;       // [n]
  const uint64_t* masks = nullptr;     // [n], bit i (63: and all above): segment i has a gradient; null: all have
  // Rows where PullRows found these feasigns. A row that holds another feasign now is looked up again. Null: all are
  // looked up.
  const uint32_t* rows = nullptr;  // [n]
  uint64_t generation = 0;         // that PullRows returned; rows of another generation are ignored
  // Writes the gradients of feasigns [first, first + count) as [count, weights_dim]. Called from several threads.
  std::function<void(size_t first, size_t count, float* out)> fill;
  uint32_t now = 0;  // as in PushSamples, as are the scales
  float rate_scale = 1.0f;
  float gradient_scale = 1.0f;
};

// A row is dropped if its score, show_weight * (show - click) + click_weight * click, is below min_score, or if it was
// last seen before `oldest`.
struct EvictRule {
  float show_weight = 1.0f;
  float click_weight = 1.0f;
  float min_score = 0.0f;
  uint32_t oldest = 0;
};

class Table {
 public:
  static constexpr size_t kShards = 256;

  // Throws Error(kConfig) for invalid settings (TableSettings::Check).
  explicit Table(TableSettings settings);

  const TableSettings& settings() const { return settings_; }
  const RowLayout& layout() const { return layout_; }

  // Writes the row of every distinct feasign into the lookup, 0 if it has none. With `insert`, feasigns without a row
  // are counted and, if admitted, get one; call it that way exactly once per training batch.
  void Find(Lookup* lookup, bool insert);

  // Pools rows into the arrays: every column a slot of the layout names is written, other columns are untouched.
  void Pull(const Lookup& lookup, const Layout& layout, const std::vector<Target>& targets) const;

  // Sums each feasign's gradients over its occurrences and updates its row once. Feasigns without a row are skipped.
  void Push(const Lookup& lookup, const Layout& layout, const std::vector<Target>& gradients,
            const PushSamples& samples);

  // Weights [n, weights_dim] of feasigns, zeros for those without a row, whose positions are appended to `missing`.
  // With `rows` [n], also writes the rows' numbers, 0 for none. Returns the generation of these numbers.
  uint64_t PullRows(std::span<const uint64_t> feasigns, float* weights, std::vector<uint32_t>* missing,
                    uint32_t* rows = nullptr) const;
  // Counts feasigns that have no row (`occurrences` [n], null: once each) and gives a row to those admitted. Writes the
  // weights of all that have one now, zeros for the others. The same calls in the same order give the same table, bit
  // for bit.
  void InsertRows(std::span<const uint64_t> feasigns, const uint32_t* occurrences, float* weights);
  // One optimizer step, counted even without feasigns. Each row is updated once; feasigns without a row are skipped.
  void PushRows(const RowGradients& gradients);
  // Adds deltas to weights and counters; optimizer state and the step count stay unchanged. Scales are not used.
  void AddRows(const RowGradients& deltas);

  // Weights [n, weights_dim], found [n] and counters [n] of given feasigns; outputs may be null. Missing: zeros.
  void Get(std::span<const uint64_t> feasigns, float* weights, bool* found, Counters* counters) const;

  // Rows whose bucket (util/hash.h) is in [first, last), at most `limit` of them, from `cursor` on (0 at first).
  // Returns the cursor to continue from, 0 at the end. Arrays are appended to. REQUIRES: the table unchanged between
  // calls. With `since`, only rows made or pushed to after that mark; kFailedPrecondition if it is not known.
  uint64_t Export(uint32_t first, uint32_t last, size_t limit, uint64_t cursor, std::vector<uint64_t>* feasigns,
                  std::vector<float>* weights, std::vector<Counters>* counters, const Mark* since = nullptr) const;

  // Marks the current state; from the first mark on the table tracks which rows change and are dropped. Marks are saved
  // and loaded. A mark is identified by a random number or, with `by_content`, by a hash of all rows: the same history
  // then always gives the same marks.
  Mark SetMark(bool by_content = false);
  bool Knows(const Mark& mark) const;
  // Feasigns whose rows were dropped after a mark and that have none now, sorted. kFailedPrecondition as in Export.
  std::vector<uint64_t> Gone(const Mark& since) const;
  // Drops what is kept for this mark and older ones.
  void Forget(const Mark& mark);

  // Multiplies show and click of every row. REQUIRES (kFailedPrecondition): the table keeps counters.
  void Decay(float rate);
  // Drop rows and return how many. Memory past the remaining rows is released. Evict needs counters.
  uint64_t Evict(const EvictRule& rule);
  uint64_t Erase(std::span<const uint64_t> feasigns);

  TableStats GetStats() const;

  // Writes the whole table, rows caught up, to a file that appears complete or not at all; docs/formats/table.md.
  // `note` is kept in the file for people.
  void Save(const std::string& path, const std::string& note) const;
  // The same into an open file, which the caller syncs and closes.
  void Write(const File& file, const std::string& note) const;
  // Replaces the table's content by a file's. On any error the table is empty or unchanged.
  void Load(const std::string& path);
  // Adds a file's rows and pending feasigns of buckets [first, last); the counts of steps and finds become the larger
  // ones. Marks are dropped: changes are tracked from here. Also throws kCorruption if the table already has one of the
  // feasigns. On any error the table is empty or unchanged.
  void LoadPart(const std::string& path, uint32_t first_bucket, uint32_t last_bucket);
  void Reset();  // empty, step 0

 private:
  friend class SnapshotWriter;
  friend class SnapshotReader;

  struct Shard {
    Index index;
    ShardRows rows;
    Pending pending;
    std::unordered_map<uint64_t, uint32_t> gone;  // feasigns without a row any more -> epoch in which it was dropped
  };

  // Rows have a number within their shard, which the index stores, and one over the whole table, which gives their
  // address.
  std::byte* Row(uint32_t number) const { return arena_.base() + static_cast<size_t>(number) * layout_.stride(); }
  std::byte* Row(const Shard& shard, uint32_t local) const { return Row(shard.rows.Number(local)); }
  KeySource KeysOf(const Shard& shard) const { return {arena_.base(), layout_.stride(), shard.rows}; }
  static size_t ShardOfHash(uint64_t hash) { return hash >> 56; }

  // A block of rows, by number (0: none), with the gradients that step them.
  struct RowsStep {
    size_t count;
    const uint32_t* rows;
    float* gradients;       // [count, weights_dim]; changed
    const uint64_t* masks;  // null: every segment has a gradient
    const float* shows;     // of the i-th row: shows[i * counter_stride]; null: counters stay
    const float* clicks;
    size_t counter_stride;
    float rate_scale;
    float gradient_scale;
    uint32_t seen;  // last-seen with the touched bit
  };
  void BeginStep(float rate_scale);
  void StepRows(const RowsStep& step);
  void CountRows(const RowsStep& step);
  // Brings one segment of a row to `step`, or all segments that catch up to the table's step.
  void CatchUp(size_t segment, std::byte* row, uint64_t step) const;
  void CatchUp(std::byte* row) const;
  void CopyWeights(uint32_t row, float* to) const {
    std::memcpy(to, RowLayout::Floats(Row(row), layout_.weights_offset()), layout_.weights_dim() * sizeof(float));
    if (catches_up_ && row != 0) CopyCaughtUp(Row(row), to);
  }
  void CopyCaughtUp(const std::byte* row, float* to) const;
  template <typename Act>
  void ForRowsThatCatchUp(Act&& act) const;
  void SetSteps(std::byte* row) const;
  void CheckNow(uint32_t now) const;
  // Calls act(first, count, rows) for blocks of feasigns whose rows were found and are being prefetched. `known`: row
  // numbers of this generation that may be theirs; null: none.
  template <typename Act>
  void ForFound(std::span<const uint64_t> feasigns, const uint32_t* known, Act&& act) const;

  uint32_t FindRow(uint64_t feasign) const;
  void FindRange(const uint64_t* feasigns, size_t count, uint32_t* rows) const;
  // As FindRange, for feasigns whose rows probably have these numbers.
  void FindKnown(const uint64_t* feasigns, const uint32_t* known, size_t count, uint32_t* rows) const;
  bool IsAdmitted(Shard& shard, uint64_t feasign, uint32_t occurrences) const;
  uint32_t AddRow(Shard& shard, uint64_t feasign);
  void InsertMissing(Lookup* lookup, const std::vector<std::vector<uint32_t>>& missing);
  template <typename Keep>
  uint64_t Compact(Keep&& keep);
  void CheckFound(const Lookup& lookup, const Layout& layout) const;
  void RequireCounters(const char* what) const;
  void RequireKnown(const Mark& mark) const;
  // A row that changed in this epoch has its touched bit set or, where there is none, the epoch's stamp.
  uint8_t StampOf(uint32_t row) const;
  uint64_t HashRows() const;
  void FoldTouched();
  void DropOldMarks();
  void Clear();

  const TableSettings settings_;
  const RowLayout layout_;
  std::vector<std::unique_ptr<Optimizer>> optimizers_;
  std::vector<Initializer> initializers_;
  bool catches_up_ = false;  // some optimizer does
  RowArena arena_;
  std::array<Shard, kShards> shards_;
  Marks marks_;
  bool is_touched_ = false;  // some row may have its touched bit set
  uint64_t steps_ = 0;       // pushes so far
  uint64_t finds_ = 0;       // inserting finds so far: the stream that admission by probability draws from
  uint64_t generation_ = 1;  // changes when row numbers become invalid
  mutable std::shared_mutex mutex_;
};

}  // namespace elasticctr
