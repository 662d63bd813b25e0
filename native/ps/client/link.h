// One pserver as seen by a client's IO thread: a connection that is reopened when it breaks, and the requests that wait
// to be sent or answered, in order. Knows frames, not their contents.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "net/connection.h"
#include "net/wire.h"
#include "ps/client/client.h"
#include "ps/client/incoming.h"
#include "ps/client/request.h"

namespace elasticctr::ps {

struct LinkCounters {
  std::atomic<uint64_t> sent_bytes{0}, received_bytes{0}, resent{0}, reconnects{0};
};

class Link {
 public:
  // `on_ready` is called after every attach. `epoll` must outlive the link. `tls` may be null.
  Link(const ClientOptions& options, uint32_t shard, int epoll, LinkCounters* counters, std::function<void()> on_ready,
       std::shared_ptr<net::TlsClient> tls);
  ~Link();

  // The functions below are called on the IO thread.
  void Submit(std::shared_ptr<Request> request, uint64_t now);
  void SetAddress(const std::string& address, uint64_t incarnation, uint64_t now);
  // Calls `ask` with every request; true: it is removed or, if already sent, its answer is ignored.
  void Remove(const std::function<bool(const Request&)>& ask);
  void OnEvents(uint32_t events, uint64_t now);
  // Does what is due and returns the time of the next call.
  uint64_t OnTime(uint64_t now);
  // The client is being destroyed: all remaining requests fail with Unavailable.
  void Close();

  // Any thread.
  LinkState state() const;

 private:
  enum class Phase : uint8_t { kPausing, kConnecting, kGreeting, kAttaching, kReady, kRefused };

  void Connect(uint64_t now);
  void HangUp(const std::string& why, uint64_t now);
  void Refuse(Code code, const std::string& why);
  void Greet(Opcode opcode, const std::string& body);
  void Transmit();
  bool SendAll();
  void Watch(bool is_blocked);
  void Receive(bool is_ending, uint64_t now);
  void TakeHeader();
  void TakeAnswer(uint64_t now);
  void TakeGreeting(uint64_t now);
  void TakeRefusal(const net::wire::Header& header, uint64_t now);
  void Expire(uint64_t now);
  uint64_t StuckAt() const;
  void Forget();
  Failure Unreached() const;
  std::string Name() const;
  void SetState(Phase phase, const std::string& trouble);

  const ClientOptions& options_;
  const uint32_t shard_;
  const int epoll_;
  LinkCounters* const counters_;
  const std::function<void()> on_ready_;
  const std::shared_ptr<net::TlsClient> tls_;
  std::string address_;
  uint64_t incarnation_;

  Phase phase_ = Phase::kPausing;
  std::unique_ptr<net::Connection> connection_;
  uint64_t resume_ns_ = 0;  // kPausing: the end of the pause. While connecting and attaching: the time limit
  uint64_t pause_ms_ = 0;
  uint64_t heard_ns_ = 0;  // when bytes last arrived, or the first unanswered request was sent
  uint64_t next_id_ = 1;
  bool was_ready_ = false;
  std::string trouble_;
  std::optional<Failure> refusal_;  // kRefused

  std::deque<std::shared_ptr<Request>> queue_;  // the first is the oldest without an answer
  size_t sent_ = 0;                             // requests of the queue sent completely
  size_t offset_ = 0;                           // bytes sent of queue_[sent_]
  std::shared_ptr<TextRequest> greeting_;       // hello or attach in flight
  size_t greeting_offset_ = 0;
  bool is_blocked_ = false;  // waiting for room in the socket

  Incoming answer_;

  mutable std::mutex state_mutex_;  // guards shown_
  LinkState shown_;
};

}  // namespace elasticctr::ps
