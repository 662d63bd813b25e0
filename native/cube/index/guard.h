// Watches over a file that is mapped and that another process may cut short. Reading past the new end would end this
// process with SIGBUS; instead the missing pages read as zeros and the file is known to be damaged from then on, so
// that the reader finds out before the bytes are used.
//
// The first guard installs a handler for SIGBUS, which passes every other SIGBUS on to the handler before it. Threads
// that read mapped files must not block it (util/signals.h does not).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace elasticctr::cube {

class Guard {
 public:
  // Of `bytes` mapped at `data` from the open file `fd`, which it closes at its end. Throws InternalError if too many
  // files are mapped already. REQUIRES: the mapping outlives it.
  Guard(const void* data, size_t bytes, int fd);
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // Whether the file was found to have lost bytes: by reading them, or by its size, which is asked for once a second at
  // most. To be called after reading and before what was read is used.
  bool IsDamaged() const { return is_damaged_.load(std::memory_order_acquire) || (IsDue() && LookAtSize()); }

 private:
  bool IsDue() const;
  bool LookAtSize() const;

  const size_t bytes_;
  const int fd_;
  size_t slot_;
  mutable std::atomic<bool> is_damaged_{false};
  mutable std::atomic<int64_t> next_look_s_{0};
};

}  // namespace elasticctr::cube
