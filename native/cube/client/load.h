// A load generator: threads that send lookups as fast as answers come, or at a given rate, and measure them. Native, so
// that the measurements do not include Python's lock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "cube/client/client.h"
#include "util/status_table.h"

namespace elasticctr::cube {

struct LoadOptions {
  size_t batch = 100;  // feasigns per lookup
  uint32_t threads = 1;
  double seconds = 5;
  double rate = 0;  // lookups per second over all threads; 0: as fast as answers come
  Client::Options lookup;
};

// Times in buckets of a 32nd of a power of two: percentiles are exact to 3 %.
class TimeHistogram {
 public:
  static constexpr size_t kBuckets = 64 * 32;
  static size_t BucketOf(uint64_t ns);
  static uint64_t UpperEdge(size_t bucket);

  void Add(uint64_t ns) { ++counts_[BucketOf(ns)]; }
  void Add(const TimeHistogram& other);
  uint64_t count() const;
  // The largest time of the fastest `share` of calls; 0 if there are none.
  uint64_t Percentile(double share) const;

 private:
  std::array<uint64_t, kBuckets> counts_{};
};

struct LoadResult {
  double seconds = 0;
  uint64_t calls = 0, keys = 0, missing = 0, degraded = 0;  // answered
  uint64_t max_ns = 0;
  TimeHistogram times;                    // of all, failed ones too; with a rate, from when a lookup was due
  std::array<uint64_t, kCodes> errors{};  // by PlaceOf
  std::string first_error;
  std::map<uint64_t, uint64_t> versions;  // calls answered from each

  void Add(const LoadResult& other);
};

class Load {
 public:
  // Starts. Each thread cycles through `keys` from its own starting point. REQUIRES: keys is not empty.
  Load(Client& client, std::string table, std::vector<uint64_t> keys, const LoadOptions& options);
  // Stops the threads.
  ~Load();

  uint64_t calls() const { return calls_.load(std::memory_order_relaxed); }
  bool is_done() const { return running_.load() == 0; }
  void Stop() { stopping_ = true; }
  // Waits until all threads end. Called once.
  LoadResult Finish();

 private:
  void Run(uint32_t thread);

  Client& client_;
  const std::string table_;
  const std::vector<uint64_t> keys_;
  const LoadOptions options_;
  const Clock::time_point started_;
  std::atomic<uint64_t> calls_{0};
  std::atomic<uint32_t> running_;
  std::atomic<bool> stopping_{false};
  std::vector<LoadResult> results_;  // one per thread
  std::vector<std::thread> threads_;
};

}  // namespace elasticctr::cube
