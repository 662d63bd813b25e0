// One pserver's state and all it does, without sockets: tables, a part of the dense vector, a cursor per chunk, the
// group. A deterministic state machine: the same changes (Insert, Push, SetGroup, Control's lifecycle) in the same
// order make the same state, which is what a standby is.
//
// Threads: every function may be called from any thread. Pulls of existing rows run side by side; changes are ordered
// by one lock, and what `Observer` sees is that order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ps/dense.h"
#include "ps/frames.h"
#include "table/settings.h"

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
  uint64_t rows = 0, row_bytes = 0, pulls = 0, pushes = 0, pulled_rows = 0, pushed_rows = 0;
  uint64_t applied_before = 0, not_finite = 0, refused = 0, steps = 0, dense_version = 0, waiting = 0, group = 0;
};

// How a push ended: written into the answer.
struct PushResult {
  PushOutcome outcome = PushOutcome::kApplied;
  uint64_t step = 0;
  uint64_t dense_version = 0;
};

class Shard {
 public:
  explicit Shard(const ShardSettings& settings);
  ~Shard();

  const ShardSettings& settings() const;
  std::span<const TableShape> shapes() const;
  const Share& share() const;

  // Appends the answer's body to `out`. Throws kFailedPrecondition (wrong shard), kUnavailable (not loaded yet).
  void Pull(const PullRequest& request, std::string* out);
  // Applies the push or lets it wait for its group; `done` is called exactly once, here or later on the thread that
  // completes the group, with the result or the error. The body must stay until then (the caller keeps it in `done`).
  // Throws what is wrong with the request itself, CursorError above all, without calling `done`.
  void Push(const PushRequest& request, std::function<void(const PushResult*, const std::exception*)> done);
  std::vector<uint32_t> Cursors(std::span<const uint64_t> chunks) const;
  // Chunks below this number are over for good: their cursors are dropped.
  void ForgetChunks(uint64_t below);
  void SetGroup(uint64_t incarnation, std::vector<uint64_t> members);
  // False: there are values already.
  bool SetDense(uint64_t first, std::span<const float> values);
  uint64_t CopyDense(std::vector<float>* out) const;  // its version

  void Decay(float rate);
  uint64_t Evict(const struct EvictRule& rule);

  // Writes `<table>.<shard>.table`, `dense.<shard>.bin` and `pserver.<shard>.json` (cursors, step, CRCs) into an
  // existing directory, all of one moment. Returns what the JSON file holds.
  std::string Save(const std::string& directory) const;
  // Takes from all parts of a saved job, of any number of pservers, what this shard owns. Replaces everything.
  void Load(const std::string& directory);

  ShardStats GetStats() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace elasticctr::ps
