// One server that holds a copy of a shard, from the view of one client: its idle connections and its health.
//
// Threads: every method may be called from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cube/client/settings.h"
#include "net/connection.h"

namespace elasticctr::cube {

using Clock = std::chrono::steady_clock;

struct ReplicaStats {
  std::string address;
  uint32_t shard;
  bool is_ejected;
  uint32_t in_flight;
  uint64_t requests, failures, ejections, connections;
};

class Replica {
 public:
  // `tls` may be null.
  Replica(std::string address, uint32_t shard, const ClientSettings& settings, std::shared_ptr<net::TlsClient> tls);

  const std::string& address() const { return address_; }
  uint32_t shard() const { return shard_; }

  // Returns an idle connection, or a new one that is still connecting. Throws Unavailable. Counts as in flight until
  // Give or Drop.
  std::unique_ptr<net::Connection> Take(bool fresh);
  void Give(std::unique_ptr<net::Connection> connection);
  void Drop(std::unique_ptr<net::Connection> connection);
  uint32_t in_flight() const { return in_flight_.load(std::memory_order_relaxed); }
  // Closes idle connections, for servers that are gone or sockets of a parent process.
  void CloseIdle();

  void RecordSuccess();
  // True: this failure ejected the replica.
  bool RecordFailure();
  bool is_ejected() const { return ejected_.load(std::memory_order_relaxed); }
  // When to probe whether it is back. REQUIRES: is_ejected().
  Clock::time_point probe_at() const;
  void ProbeFailed();
  // Resolves the name again; does not throw.
  void ResolveAgain();

  // Stores the version of a model that it reports as active; returns its previous report (0: none).
  uint64_t NoteActive(size_t model, uint64_t version);

  // Stores the limits that it reported in hello.
  void SetLimits(uint64_t max_body, uint64_t max_keys);
  uint64_t max_keys() const { return max_keys_.load(std::memory_order_relaxed); }

  ReplicaStats stats() const;

 private:
  void Eject();  // REQUIRES: mutex_ held

  const std::string address_;
  const uint32_t shard_;
  const ClientSettings& settings_;
  const std::shared_ptr<net::TlsClient> tls_;

  std::atomic<uint32_t> in_flight_{0}, consecutive_{0};
  std::atomic<bool> ejected_{false};
  std::atomic<uint64_t> requests_{0}, failures_{0}, ejections_{0}, connections_{0};
  std::atomic<uint64_t> max_keys_;

  mutable std::mutex mutex_;  // guards all below
  std::vector<std::unique_ptr<net::Connection>> idle_;
  net::SocketAddress target_;
  std::vector<uint64_t> active_;  // by model
  Clock::time_point probe_at_, returned_at_{};
  uint32_t out_ms_;
};

// The replicas of one shard.
class ReplicaSet {
 public:
  ReplicaSet(const std::vector<std::string>& addresses, uint32_t shard, const ClientSettings& settings,
             const std::shared_ptr<net::TlsClient>& tls);

  size_t size() const { return replicas_.size(); }
  Replica& operator[](size_t i) const { return *replicas_[i]; }

  // The replica to ask, or -1. Chosen by the balance among those that are not in `tried` (bit i) and not ejected; if
  // there is none and `desperate` is set, among the ejected ones not tried.
  int Pick(uint64_t tried, bool desperate) const;

 private:
  int Pick(uint64_t tried, bool ejected, size_t start) const;

  const Balance balance_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  mutable std::atomic<uint32_t> next_;
};

}  // namespace elasticctr::cube
