// One pserver's state and all it does, without sockets: tables, a part of the dense vector, a cursor per chunk, the
// group. A deterministic state machine: the same changes in the same order make the same state, bit for bit, which is
// what a standby is.
//
// Threads: every function may be called from any thread. Pulls of existing rows run side by side; changes are ordered
// by one lock, and what `Observer` sees is that order.
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
  std::vector<uint64_t> missing;  // members of the group, while others wait for them
  bool has_dense = false;
};

// A change as a standby receives it: the body of that opcode. kPush: a push as it arrived; kGroup; kSetDense;
// kInsert: rows made or counted in a pull; kControl: JSON of what has no frame of its own.
struct Change {
  Opcode opcode;
  std::span<const uint8_t> body;
};

// Called under the shard's lock with every change, in order. Returns its place in that order.
class Observer {
 public:
  virtual ~Observer() = default;
  // False: changes need not be told.
  virtual bool IsWatching() const = 0;
  virtual uint64_t OnChange(const Change& change) = 0;
};

// How a push ended: written into the answer.
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
  // How often the job went back to a checkpoint, as the last load said. Pulls and pushes name the era of the work they
  // are of: those of an earlier one are refused with EraError, of a later one with Unavailable until that is loaded.
  uint64_t era() const;
  // The same for what is read without changing anything: an era that has passed does not come back.
  void CheckEra(uint64_t era);

  // At most this many bytes answer the pull.
  size_t PullAnswerBytes(const PullRequest& request) const;
  // Writes the answer's body. Throws kFailedPrecondition (a feasign of another shard).
  // With `found`, which is the caller's, notes where the rows are.
  PullResult Pull(const PullRequest& request, uint8_t* out, FoundRows* found = nullptr);

  // Applies the push or lets it wait for its group; `done` is called exactly once, here or later on the thread that
  // completes the group, with the result or the error. The body must stay until then (the caller keeps it in `done`).
  // Throws what is wrong with the request itself, CursorError above all, without calling `done`.
  void Push(const PushRequest& request, PushDone done);
  // Whether it would be kept after Push has returned.
  static bool Waits(const PushRequest& request) { return request.group != GroupMode::kNone; }

  std::vector<uint32_t> Cursors(std::span<const uint64_t> chunks) const;
  // Chunks below this number are over for good: their cursors are dropped, and pushes of them count as applied before.
  void ForgetChunks(uint64_t below);
  void SetGroup(std::vector<uint64_t> members);
  // Floats [first, first + values) of the job's vector, which must be all of this part. False: there are values
  // already.
  bool SetDense(uint64_t first, std::span<const float> values);
  // The dense part's version; with `out`, its values too.
  uint64_t CopyDense(float* out) const;
  uint64_t step() const;

  void Decay(float rate);
  uint64_t Evict(const EvictRule& rule);

  // Writes `<table>.<shard>.table`, `dense.<shard>.bin` and `pserver.<shard>.json` (docs/formats/checkpoint.md) into an
  // existing directory, all of one moment. Returns what the JSON file holds.
  std::string Save(const std::string& directory) const;
  // Takes from all parts of a saved job, of any number of pservers, what this shard owns. Replaces everything.
  void Load(const std::string& directory, uint64_t era = 0);
  // As new.
  void Reset(uint64_t era = 0);

  // At most one; null: none.
  void SetObserver(Observer* observer);
  // A standby: does what its primary did. Pushes that wait there wait here, for as long.
  void Replay(Opcode opcode, std::span<const uint8_t> body);
  // For a standby that begins: as Save, but of pushes that wait, too, which Save leaves out. `at_moment` is called
  // under the lock.
  void SaveForStandby(const std::string& directory, const std::function<void()>& at_moment) const;
  void LoadFromPrimary(const std::string& directory, uint64_t era = 0);
  // The primary is gone: what waits for a group now waits for at most the group's time.
  void BecomePrimary();

  ShardStats GetStats() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace elasticctr::ps
