// State shared by the functions of a client. Internal to native/ps/client.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ps/client/client.h"
#include "ps/client/dense.h"
#include "ps/client/io.h"
#include "ps/client/request.h"

namespace elasticctr::ps {

// Unacknowledged pushes and refusals. Any thread.
class PushBook {
 public:
  struct Ticket {
    uint64_t number;
    uint64_t generation;
    size_t parts;  // pservers that have not answered
  };

  std::shared_ptr<Ticket> Open(size_t parts);
  void Acknowledge(Ticket& ticket);
  void Fail(Ticket& ticket, Failure failure);
  // True: at most `outstanding` are left. Throws the first refusal.
  bool Wait(size_t outstanding, uint32_t timeout_ms);
  size_t outstanding() const;
  // Starts over; pushes of this generation and earlier no longer count.
  uint64_t Drop();

 private:
  void End(Ticket& ticket);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t last_ = 0;
  uint64_t generation_ = 1;
  size_t outstanding_ = 0;
  std::optional<Failure> failure_;
};

struct ClientCounters {
  std::atomic<uint64_t> pulls{0}, pushes{0}, applied_before{0}, not_finite{0};
};

struct Client::State {
  explicit State(const ClientOptions& given);

  uint32_t shards() const { return static_cast<uint32_t>(options.addresses.size()); }
  uint64_t Deadline(uint32_t timeout_ms) const;
  std::string Trouble() const;  // of pservers that are not connected
  void CheckTables(size_t given) const;
  // Sends one text request to each pserver and returns the answers.
  std::vector<std::string> AskAll(Opcode opcode, const std::vector<std::string>& bodies, uint32_t timeout_ms);

  const ClientOptions options;
  std::atomic<uint64_t> era{options.era};
  std::shared_ptr<DenseStore> dense;
  std::shared_ptr<PushBook> book;
  std::shared_ptr<ClientCounters> counters = std::make_shared<ClientCounters>();
  std::mutex cursors_mutex;  // guards cursors
  std::map<uint64_t, std::vector<uint32_t>> cursors;
  Io io;  // last: its thread uses the members above
};

}  // namespace elasticctr::ps
