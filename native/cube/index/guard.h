// Guards a mapped file that another process may truncate. Reading past the new end would kill this process with SIGBUS;
// instead the missing pages read as zeros and the file is marked as damaged, so that the reader finds out before the
// bytes are used.
//
// The first guard installs a handler for SIGBUS, which passes every other SIGBUS on to the previous handler. Threads
// that read mapped files must not block the signal (util/signals.h does not).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace elasticctr::cube {

class Guard {
 public:
  // Guards `bytes` mapped at `data` from the open file `fd`, which the destructor closes. Throws InternalError if too
  // many files are mapped already. REQUIRES: the mapping outlives it.
  Guard(const void* data, size_t bytes, int fd);
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // Whether the file was found to be truncated: by a read, or by its size, which is checked at most once a second. Call
  // after reading and before using what was read.
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
