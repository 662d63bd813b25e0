// The server's counters. Every loop writes its own cells, without locks or atomic additions; the reader sums them up.
// Names and meanings are in docs/how-to/cube-server.md.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace elasticctr::cube {

// Written by one thread, read by any.
class Counter {
 public:
  void Add(uint64_t n) { value_.store(get() + n, std::memory_order_relaxed); }
  uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

enum class Speaks : uint8_t { kWire, kResp, kHttp };
inline constexpr size_t kSpeaks = 3;
inline constexpr const char* kSpeaksNames[kSpeaks] = {"wire", "redis", "http"};

// Why a lookup returned no row for a feasign.
enum class Miss : uint8_t {
  kMissing,
  kWrongShard,
  kNoVersion,
  kNothingActive,
  kNoTable,
  kOverloaded,
  kDeadline,
  kMalformed,
  kDamaged
};
inline constexpr size_t kMisses = 9;
inline constexpr const char* kMissNames[kMisses] = {"missing",        "wrong_shard", "no_version",
                                                    "nothing_active", "no_table",    "overloaded",
                                                    "deadline",       "malformed",   "damaged"};

inline constexpr std::array<double, 14> kLatencyBounds = {5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4,
                                                          1e-3, 2e-3, 5e-3, 1e-2, 5e-2, 0.1,  1.0};
inline constexpr std::array<double, 9> kBatchBounds = {1, 10, 26, 50, 100, 500, 1000, 10000, 100000};

// One loop's counters for one table.
struct alignas(64) TableCells {
  Counter requests[kSpeaks];
  Counter keys[kSpeaks];
  Counter hits;
  Counter misses[kMisses];
};

struct alignas(64) LoopCells {
  Counter latency[kLatencyBounds.size() + 1];
  Counter latency_ns;
  Counter batch[kBatchBounds.size() + 1];
  Counter batch_keys;
  Counter unauthorized;
  Counter malformed;  // frames, commands and requests that closed their connection
  TableCells no_table;
};

class Metrics {
 public:
  explicit Metrics(size_t loops) : loops_(loops) {}

  LoopCells& loop(size_t index) { return loops_[index]; }
  // One loop's cells for a table, created on first use and kept permanently.
  TableCells* Table(const std::string& name, size_t loop);
  // Prometheus text of all counters here.
  void Write(std::string* out);

 private:
  std::vector<LoopCells> loops_;
  std::mutex mutex_;
  std::map<std::string, std::vector<std::unique_ptr<TableCells>>> tables_;
};

// Writes the Prometheus header of one metric family.
void WriteFamily(std::string* out, const char* name, const char* type, const char* help);
void WriteSample(std::string* out, const std::string& name_and_labels, double value);

}  // namespace elasticctr::cube
