// Sends frames to several shards at once and collects their answers within one deadline: attempts on replicas, retries
// on others, backup requests. An Exchange is used by one thread, which waits in poll.
//
// An attempt ends in one of three ways, and the next action is a type: an answer; a failure that another replica may
// not have (kOtherReplica: refused, cut off, garbage, overloaded, an internal error); a failure they all share (kStop:
// wrong token, wrong shard, malformed).
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cube/client/attempt.h"
#include "cube/client/cluster.h"

namespace elasticctr::cube {

class Exchange {
 public:
  explicit Exchange(Cluster& cluster);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Returns when every leg has an answer or an error.
  void Run(std::span<Leg> legs, Clock::time_point deadline);

 private:
  struct LegState;
  enum class Retry : uint8_t { kOtherReplica, kStop };
  struct Failure {
    Code code;
    Retry retry = Retry::kOtherReplica;
    bool is_replicas_fault = true;  // counts towards its ejection
    net::wire::Detail detail = net::wire::Detail::kNone;
    uint32_t retry_after_ms = 0;
    std::string message;
  };

  void Start(size_t leg, bool as_backup);
  void StartOn(size_t leg, int replica, bool fresh, bool as_backup);
  void Advance(Attempt& attempt);
  void Receive(Attempt& attempt);
  void PrepareRequest(Attempt& attempt);
  Failure ToFailure(const AnswerReader& answer) const;
  void Succeed(Attempt& attempt);
  void Fail(Attempt& attempt, const Failure& failure);
  std::unique_ptr<net::Connection> Detach(Attempt& attempt);
  void Close(Attempt& attempt);
  void Blame(Replica& replica);
  void GiveUp(size_t leg);
  void WakeDue();
  bool WantsBackup(size_t leg) const;
  Clock::time_point NextEvent() const;
  Attempt& NewAttempt();

  Cluster& cluster_;
  std::span<Leg> legs_;
  Clock::time_point deadline_, now_;
  size_t open_legs_ = 0;
  std::vector<LegState> states_;
  std::vector<std::unique_ptr<Attempt>> attempts_;  // kept for their buffers; this run uses the first used_
  size_t used_ = 0;
  std::vector<pollfd> polled_;
  std::vector<Attempt*> polled_attempts_;
};

}  // namespace elasticctr::cube
