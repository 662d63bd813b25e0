// The standby's half: a thread that copies its primary's state and then applies all changes of the primary.
//
// Once in sync it stays fit to take over when the primary stops answering. If it reaches the primary again and has
// missed changes, it starts over, and is not fit until it has caught up.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "net/tls.h"
#include "ps/client/asker.h"
#include "ps/shard/shard.h"

namespace elasticctr::ps {

struct FollowerOptions {
  std::string primary;  // host:port or unix:/path
  std::string token;
  uint64_t job = 0;
  std::string attach;   // JSON
  std::string scratch;  // directory for the copy of the state
  uint32_t timeout_ms = 10'000;
  uint32_t transfer_timeout_ms = 600'000;
  std::shared_ptr<net::TlsClient> tls;  // null: plain
};

class Follower {
 public:
  // Starts at once. `shard` outlives it.
  Follower(const FollowerOptions& options, Shard* shard);
  // Stops following; the shard keeps its state.
  ~Follower();

  bool is_caught_up() const { return is_caught_up_.load(); }
  bool is_connected() const { return is_connected_.load(); }
  uint64_t place() const { return place_.load(); }
  const std::string& primary() const { return options_.primary; }
  std::string trouble() const;

 private:
  void Run();
  void FollowOnce();
  void CopyState(uint64_t* session);
  void Replay(const std::string& changes);

  const FollowerOptions options_;
  Shard* const shard_;
  Asker primary_;
  std::atomic<bool> is_stopping_{false}, is_caught_up_{false}, is_connected_{false};
  std::atomic<uint64_t> place_{0};
  mutable std::mutex mutex_;
  std::string trouble_;
  std::thread thread_;
};

// Verbs of opcode 24; the first byte of its body.
enum class ReplicaVerb : uint8_t { kBegin = 0, kRead = 1, kLog = 2 };

}  // namespace elasticctr::ps
