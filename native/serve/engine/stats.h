// Counters and histograms of predictions. Counters are atomic; histograms have fixed bounds.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "util/status.h"

namespace elasticctr::serve {

// Bounds double from 50 µs to 3.3 s; the last bucket has none.
class LatencyHistogram {
 public:
  static constexpr size_t kBuckets = 18;
  static uint64_t bound_ns(size_t i) { return 50'000ull << i; }
  void Add(uint64_t ns) {
    size_t i = 0;
    while (i + 1 < kBuckets && ns > bound_ns(i)) ++i;
    counts_[i].fetch_add(1, std::memory_order_relaxed);
    sum_ns_.fetch_add(ns, std::memory_order_relaxed);
  }
  uint64_t count(size_t i) const { return counts_[i].load(std::memory_order_relaxed); }
  uint64_t sum_ns() const { return sum_ns_.load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<uint64_t>, kBuckets> counts_{};
  std::atomic<uint64_t> sum_ns_{0};
};

// Of one (model, variant, version).
struct VariantStats {
  std::atomic<uint64_t> requests{0}, samples{0}, degraded{0}, asked{0}, found{0};
  std::array<std::atomic<uint64_t>, 32> errors{};  // by Code
  std::atomic<double> score_sum{0};
  LatencyHistogram latency;  // from the last byte of the request to the answer
};

// Of the whole engine.
struct EngineStats {
  std::atomic<uint64_t> batches{0}, batch_requests{0}, batch_samples{0}, split_batches{0};
  std::atomic<uint64_t> refused_full{0}, refused_late{0}, refused_bad{0}, shadow_dropped{0};
  LatencyHistogram queue, lookup, dense;
};

}  // namespace elasticctr::serve
