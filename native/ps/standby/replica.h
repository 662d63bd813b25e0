// The primary's half of a hot standby: the log of changes that the standby fetches, and answers held until it has them.
//
// A standby first copies the state (joining), then fetches the log from that moment on. Once it is close behind, pushes
// are acknowledged only after it has them (in sync). A standby that falls behind, or is silent for too long, is
// dropped: training continues without it. Because a dropped standby must never take over, answers held for it are
// released only after the coordinator, which decides on takeovers, knows (ConfirmDrop).
//
// Threads: every function may be called from any thread. OnChange is called under the shard's lock and never gives
// answers.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ps/shard/shard.h"

namespace elasticctr::ps {

struct ReplicaOptions {
  uint64_t max_bytes = 512ull << 20;  // of changes the standby does not have
  uint32_t timeout_ms = 5'000;        // without a message from it
  uint32_t keepalive_ms = 500;        // the longest wait for an empty answer
  uint64_t near_bytes = 8ull << 20;   // counts as close behind
  bool confirms_itself = true;        // no coordinator decides on takeovers
};

struct ReplicaStats {
  const char* state = "none";
  uint64_t drops = 0, behind_bytes = 0, place = 0, held = 0;
};

class Replica : public Observer {
 public:
  explicit Replica(const ReplicaOptions& options);
  ~Replica() override;

  bool IsWatching() const override;
  uint64_t OnChange(const Change& change) override;

  // Calls `answer` once the standby has the change at this place: at once if it has it or no standby needs it, else
  // later.
  void WhenHeld(uint64_t place, std::function<void()> answer);
  bool IsHeld(uint64_t place) const;
  uint64_t last_place() const;

  struct Start {
    uint64_t session = 0;
    uint64_t place = 0;  // of the last change before it
  };
  // A standby starts: the log begins here. Replaces any other standby. REQUIRES: the shard's lock is held.
  Start Begin();
  // Notes a message from a standby that copies the state.
  void Hear(uint64_t session);
  // The standby has everything up to `acked` and wants the next changes as soon as there are any. Throws kUnavailable
  // for a session that has ended: the standby must begin again.
  void Fetch(uint64_t session, uint64_t acked, std::function<void(std::string)> answer);
  // The standby's connection is closed.
  void Leave(uint64_t session);
  // The state was replaced: a standby that follows must start over.
  void Reset();

  bool is_dropping() const;
  void ConfirmDrop();
  ReplicaStats GetStats() const;

 private:
  enum class Phase : uint8_t { kNone, kJoining, kClosing, kInSync, kDropping };
  struct Entry {
    uint64_t place;
    uint64_t at_ns;
    std::string bytes;  // place, opcode, length, body
  };
  struct Held {
    uint64_t place;
    std::function<void()> answer;
  };
  using Answers = std::vector<std::function<void()>>;

  bool Waits() const { return phase_ == Phase::kClosing || phase_ == Phase::kInSync || phase_ == Phase::kDropping; }
  void StartDrop(Answers* released);
  void EndDrop(Answers* released);
  void ReleaseAll(Answers* released);
  void ForgetLog();
  void Serve();
  std::string TakeAnswer();

  const ReplicaOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  Phase phase_ = Phase::kNone;
  uint64_t session_ = 0;
  uint64_t place_ = 0;      // of the last change
  uint64_t acked_ = 0;      // the last one the standby has
  uint64_t sync_from_ = 0;  // in sync from here: it then has everything that was acknowledged to anybody
  uint64_t heard_ns_ = 0;
  uint64_t drops_ = 0;
  std::deque<Entry> log_;  // not acknowledged by the standby
  uint64_t log_bytes_ = 0;
  std::deque<Held> held_;  // by place
  std::function<void(std::string)> fetch_;
  uint64_t fetch_ns_ = 0;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace elasticctr::ps
