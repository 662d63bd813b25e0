// The state of Shard, shared by its files: shard.cc (reading, lifecycle), push.cc (what a push changes), group.cc
// (pushes that wait), files.cc (save and load), replay.cc (standby).
#pragma once

#include <atomic>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <thread>

#include "ps/shard/cursors.h"
#include "ps/shard/json.h"
#include "ps/shard/shard.h"
#include "ps/shard/sums.h"

namespace elasticctr::ps {

// A push that waits for its group.
struct Waiting {
  PushRequest request;
  PushDone done;               // null: the trainer is gone, or it asked the primary
  std::vector<uint8_t> owned;  // the body, unless a caller keeps it
  std::vector<Share> ahead;    // hybrid: parts that had the batches already
  uint64_t deadline_ns = 0;    // 0: none
  bool is_finite = true;
  bool was_member = false;  // of the group, at some time since it arrived
  bool rows_done = false;   // hybrid: the rows were updated, the dense part waits
};

// Identifies a push of a trainer: the batches of a chunk or, for a push without batches, its number.
struct PushIdentity {
  uint64_t chunk = 0;
  uint32_t from = 0, to = 0;
  PushKind kind = PushKind::kGradients;
  bool operator==(const PushIdentity&) const = default;
};

// An answer to give once the lock is released.
struct Finished {
  PushDone done;
  PushResult result;
  std::exception_ptr error;  // null: the result
};

struct Shard::State {
  explicit State(const ShardSettings& given);

  // Locks `order`. Writes the rows to `weights`; returns the place of the change if it was logged, else 0. Throws
  // EraError.
  uint64_t Insert(uint32_t table, const std::vector<uint64_t>& feasigns, const std::vector<uint32_t>& occurrences,
                  uint64_t era, float* weights);

  // push.cc. All REQUIRE: order is held.
  void Arrive(const PushRequest& request, PushDone done, bool is_finite, std::vector<Finished>* finished);
  void CheckCursor(const PushRequest& request) const;
  void CheckEra(uint64_t asked);
  void StepRows(std::span<const Contribution> contributions);
  void StepDense(DensePart* part, std::span<const Contribution> contributions) const;
  void AddDeltas(const PushRequest& request);
  void MoveCursor(const PushRequest& request);
  bool IsWatched() const { return observer != nullptr && observer->IsWatching(); }
  uint64_t Log(Opcode opcode, std::span<const uint8_t> body);

  // group.cc. All REQUIRE: order is held.
  bool IsMember(uint64_t trainer) const;
  bool TakeOver(const PushRequest& request, PushDone* done);
  bool TookPart(const PushRequest& request) const;
  std::set<uint64_t> Missing() const;
  void Enqueue(Waiting waiting);
  void StepGroups(uint64_t place, std::vector<Finished>* finished);
  void StepOnce(std::list<Waiting> taken, uint64_t place, std::vector<Finished>* finished);
  void ChangeGroup(std::vector<uint64_t> members, uint64_t place, std::vector<Finished>* finished);
  // Called when the first waiting push of this trainer and chunk has timed out.
  void Expire(uint64_t trainer, uint64_t chunk, uint32_t from, uint64_t place, std::vector<Finished>* finished);
  void DropWaiting(std::vector<Finished>* finished);
  void WatchDeadlines();

  PushResult Result(PushOutcome outcome, uint64_t place) const;
  // files.cc
  std::string WriteFiles(const std::string& directory, bool is_transfer, const std::function<void()>& at_moment) const;
  void ReadFiles(const std::string& directory, const std::vector<SavedShard>& parts);
  void ReadWaiting(const std::string& path);
  void Clear();
  void CountRows(ShardStats* stats) const;

  const ShardSettings settings;
  const Share share;
  std::vector<TableShape> shapes;
  std::vector<std::unique_ptr<Table>> tables;

  mutable std::mutex order;  // of all changes
  Observer* observer = nullptr;
  uint64_t last_place = 0;  // of the last change reported to the observer
  ps::Cursors cursors;
  std::vector<uint64_t> group;                  // sorted
  std::list<Waiting> waiting;                   // by arrival
  std::map<uint64_t, PushIdentity> taken_part;  // the newest push of each trainer that was in a step of the group
  uint64_t rounds = 0;                          // steps of the group
  mutable std::shared_mutex dense_mutex;        // locked after `order` when both are held
  DensePart dense;
  std::atomic<uint64_t> step{0};
  std::atomic<uint64_t> era{0};  // changed under `order`, together with everything else
  bool is_following = false;
  std::atomic<bool> is_loading{false};
  std::mutex seen_mutex;
  ShardStats seen;  // as last reported

  struct {
    std::atomic<uint64_t> pulls{0}, pushes{0}, pulled_rows{0}, pushed_rows{0}, inserted{0}, applied_before{0},
        not_finite{0}, late{0}, old_era{0};
  } counts;

  std::condition_variable deadlines;
  bool stopping = false;
  std::thread watcher;
};

// Calls everyone's `done`. REQUIRES: no lock is held.
void Answer(std::vector<Finished>* finished);
// Throws unless every feasign belongs to these buckets, and the dense part is complete or absent.
void CheckRequest(const PushRequest& request, const Share& share);
bool IsFinite(const PushRequest& request, std::span<const TableShape> shapes);
// The feasigns, aligned: in place, or copied to `scratch`.
std::span<const uint64_t> Feasigns(const uint64_t* feasigns, size_t count, std::vector<uint64_t>* scratch);
void CheckBuckets(std::span<const uint64_t> feasigns, const Share& share);

}  // namespace elasticctr::ps
