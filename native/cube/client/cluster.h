// The servers a client talks to, its counters, and the thread that probes ejected replicas.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "cube/client/replica.h"
#include "util/status_table.h"

namespace elasticctr::cube {

struct ClientCounters {
  std::atomic<uint64_t> calls{0}, keys{0}, missing{0}, repeated{0}, sent_keys{0};
  std::atomic<uint64_t> cache_hits{0}, cache_misses{0};
  std::atomic<uint64_t> retries{0}, backups{0}, backups_won{0}, ejections{0}, returns{0};
  std::atomic<uint64_t> version_changes{0}, versions_gone{0}, describes{0};
  std::atomic<uint64_t> degraded_calls{0}, degraded_keys{0};
  std::array<std::atomic<uint64_t>, kCodes> errors{};  // by PlaceOf
};

class Cluster {
 public:
  // Throws ConfigError.
  explicit Cluster(ClientSettings settings);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  const ClientSettings& settings() const { return settings_; }
  uint32_t shards() const { return static_cast<uint32_t>(shards_.size()); }
  ReplicaSet& shard(size_t i) { return *shards_[i]; }
  ClientCounters& counters() { return counters_; }
  uint64_t NextId() { return next_id_.fetch_add(1, std::memory_order_relaxed); }

  // Called after an ejection: starts or wakes the prober.
  void WakeProber();

 private:
  void Probe();
  // Probes the replicas that are due; returns the time of the next probe.
  Clock::time_point ProbeDue();

  const ClientSettings settings_;
  std::vector<std::unique_ptr<ReplicaSet>> shards_;
  ClientCounters counters_;
  std::atomic<uint64_t> next_id_;

  std::mutex mutex_;  // guards all below
  std::condition_variable wake_;
  bool stopping_ = false;
  bool woken_ = false;
  std::thread prober_;
  uint64_t prober_generation_ = 0;  // ForkGeneration of the prober: a child process has none until it needs one
};

}  // namespace elasticctr::cube
