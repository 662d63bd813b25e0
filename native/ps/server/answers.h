// The answers of one connection, in the order of its requests, whichever thread makes them: the loop's thread at once,
// or any thread later.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "net/loop/server.h"

namespace elasticctr::ps {

class Answers {
 public:
  // REQUIRES: the server outlives it.
  Answers(net::Server* server, net::ConnectionId id) : server_(server), id_(id) {}

  // A place in the order for an answer that comes later. The loop's thread.
  uint64_t Open();
  // An answer that is here already, behind others that are not. The loop's thread.
  void Append(std::string answer);
  // Any thread, once per place.
  void Fill(uint64_t place, std::string answer);

  // The next frame must wait until the last place opened is filled.
  void Hold() { is_held_.store(true, std::memory_order_release); }
  bool is_held() const { return is_held_.load(std::memory_order_acquire); }

 private:
  struct Slot {
    bool is_filled = false;
    std::string answer;
  };
  void Send();

  net::Server* const server_;
  const net::ConnectionId id_;
  std::atomic<bool> is_held_{false};
  std::mutex mutex_;
  std::deque<Slot> slots_;
  uint64_t first_ = 0;  // place of the first slot
};

}  // namespace elasticctr::ps
