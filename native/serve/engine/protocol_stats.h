// Predictions by protocol and code. Counted by workers, read for metrics.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "serve/engine/engine.h"
#include "serve/http/routes.h"

namespace elasticctr::serve {

class ProtocolStats {
 public:
  static constexpr size_t kCodes = 32;  // 0: OK

  void Add(const Finished& finished) {
    const size_t code = finished.error == nullptr ? 0 : static_cast<size_t>(finished.error->code()) % kCodes;
    const size_t protocol = IndexOf(*finished.request->codec);
    if (protocol < kMaxCodecs) counts_[protocol][code].fetch_add(1, std::memory_order_relaxed);
  }
  uint64_t count(size_t protocol, size_t code) const { return counts_[protocol][code].load(std::memory_order_relaxed); }

 private:
  std::array<std::array<std::atomic<uint64_t>, kCodes>, kMaxCodecs> counts_{};
};

}  // namespace elasticctr::serve
