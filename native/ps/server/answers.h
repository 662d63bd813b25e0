// Sends the answers of one connection in the order of its requests, whichever thread makes them: the loop's thread at
// once, or any thread later.
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

  // Reserves a place in the order for a later answer. Called by the loop's thread.
  uint64_t Open();
  // Adds a finished answer behind those still missing. Called by the loop's thread.
  void Append(std::string answer);
  // Called once per place, by any thread.
  void Fill(uint64_t place, std::string answer);

  // The next frame must wait until the most recent place is filled.
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
