// One pserver's state and operations, without sockets: tables, a part of the dense vector, a cursor per chunk, the
// group. A deterministic state machine: the same changes in the same order give the same state, bit for bit; standbys
// rely on this.
//
// Threads: every function may be called from any thread. Pulls of existing rows run concurrently; one lock orders all
// changes, and `Observer` sees them in that order.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ps/server/found_rows.h"
#include "ps/shard/cursor_error.h"
#include "ps/shard/dense.h"
#include "ps/shard/era_error.h"
#include "ps/wire/frames.h"
#include "table/settings.h"
#include "table/table.h"

namespace elasticctr::ps {

struct ShardSettings {
  uint32_t shard = 0;
  uint32_t shards = 1;
  std::vector<TableSettings> tables;
  uint64_t dense_floats = 0;  // of the whole job
  bool dense_on_first = false;
  DenseOptimizerSettings dense_optimizer;
  uint32_t group_timeout_ms = 60'000;
};

struct ShardStats {
  uint64_t rows = 0, row_bytes = 0, table_bytes = 0, pending = 0;
  uint64_t pulls = 0, pushes = 0, pulled_rows = 0, pushed_rows = 0, inserted = 0;
  uint64_t applied_before = 0, not_finite = 0, late = 0, old_era = 0;
  uint64_t steps = 0, dense_version = 0, waiting = 0, group = 0, rounds = 0, chunks = 0;
  std::vector<uint64_t> missing;  // members of the group that others are waiting for
  bool has_dense = false;
};

// A change as sent to a standby: the body of that opcode. kPush: a push as it arrived; kGroup; kSetDense; kInsert: rows
// made or counted in a pull; kControl: JSON for changes without a frame of their own.
struct Change {
  Opcode opcode;
  std::span<const uint8_t> body;
};

// Called under the shard's lock with every change, in order. Returns its place in that order.
class Observer {
 public:
  virtual ~Observer() = default;
  // False: changes need not be reported.
  virtual bool IsWatching() const = 0;
  virtual uint64_t OnChange(const Change& change) = 0;
};

// The result of a push, written into the answer.
struct PushResult {
  PushOutcome outcome = PushOutcome::kApplied;
  uint64_t step = 0;
  uint64_t dense_version = 0;
  uint64_t place = 0;  // of the last change it depends on; 0: none, or there is no observer
};

struct PullResult {
  size_t bytes = 0;
  uint64_t place = 0;
};

using PushDone = std::function<void(const PushResult*, const std::exception*)>;

class Shard {
 public:
  explicit Shard(const ShardSettings& settings);
  ~Shard();

  const ShardSettings& settings() const;
  std::span<const TableShape> shapes() const;
  const Share& share() const;
  // How often the job was rolled back to a checkpoint, as of the last load. Pulls and pushes carry the era of their
  // work: an earlier era is refused with EraError, a later one with Unavailable until that era is loaded.
  uint64_t era() const;
  // The same check for read-only requests: a past era does not come back.
  void CheckEra(uint64_t era);

  // The largest size of the answer to the pull.
  size_t PullAnswerBytes(const PullRequest& request) const;
  // Writes the answer's body. Throws kFailedPrecondition (a feasign of another shard).
  // With `found`, which belongs to the caller, notes where the rows are.
  PullResult Pull(const PullRequest& request, uint8_t* out, FoundRows* found = nullptr);

  // Applies the push or lets it wait for its group. `done` is called exactly once with the result or the error: here,
  // or later on the thread that completes the group. The body must stay valid until then (the caller keeps it in
  // `done`). If the request itself is invalid, throws (usually CursorError) without calling `done`.
  void Push(const PushRequest& request, PushDone done);
  // Whether Push may keep the request after it returns.
  static bool Waits(const PushRequest& request) { return request.group != GroupMode::kNone; }

  std::vector<uint32_t> Cursors(std::span<const uint64_t> chunks) const;
  // Chunks below this number are finished: their cursors are dropped, and pushes of them count as already applied.
  void ForgetChunks(uint64_t below);
  void SetGroup(std::vector<uint64_t> members);
  // Sets floats [first, first + values) of the job's vector, which must be exactly this part. False: it has values
  // already.
  bool SetDense(uint64_t first, std::span<const float> values);
  // The dense part's version; with `out`, its values too.
  uint64_t CopyDense(float* out) const;
  uint64_t step() const;

  void Decay(float rate);
  uint64_t Evict(const EvictRule& rule);

  // Writes `<table>.<shard>.table`, `dense.<shard>.bin` and `pserver.<shard>.json` (docs/formats/checkpoint.md) into an
  // existing directory, as one consistent state. Returns the contents of the JSON file.
  std::string Save(const std::string& directory) const;
  // Loads what this shard owns from all parts of a saved job with any number of pservers. Replaces everything.
  void Load(const std::string& directory, uint64_t era = 0);
  // Restores the initial state.
  void Reset(uint64_t era = 0);

  // Sets the only observer; null: none.
  void SetObserver(Observer* observer);
  // On a standby: applies a change of its primary. Pushes that wait there wait here, for as long.
  void Replay(Opcode opcode, std::span<const uint8_t> body);
  // For a standby that starts: as Save, and includes waiting pushes, which Save leaves out. `at_moment` is called under
  // the lock.
  void SaveForStandby(const std::string& directory, const std::function<void()>& at_moment) const;
  void LoadFromPrimary(const std::string& directory, uint64_t era = 0);
  // The primary is gone: pushes that wait for a group now wait for at most the group's timeout.
  void BecomePrimary();

  ShardStats GetStats() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace elasticctr::ps
