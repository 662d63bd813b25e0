// One thread's share of the connections: an epoll set, a buffer to read into and one to answer from.
//
// A readable connection is read once, every whole request in the bytes is answered into one buffer, and the buffer is
// written once. A connection whose answers do not fit its socket keeps them, and is not read from until they are sent.
// Idle connections hold no buffers. Large requests wait behind small ones: between two of them, every small request
// that has arrived is answered.
//
// Threads: Adopt, Complete, Wake, Drain and Stop may be called from any thread.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "net/buffer.h"
#include "net/loop/budget.h"
#include "net/loop/session.h"
#include "net/socket.h"
#include "net/tls.h"

namespace elasticctr::net {

struct LoopLimits {
  uint32_t request_timeout_s = 15;  // for a request to arrive whole and for an answer to be read; longer for large ones
  uint32_t busy_poll_us = 0;        // how long to poll for work before sleeping
  uint32_t crowded_idle_s = 30;     // connections idle for this long are closed when the server is full
};

// Counted by the loops, read for metrics.
struct LoopStats {
  std::atomic<uint64_t> accepted{0};
  std::atomic<uint64_t> refused{0};    // over a limit of connections
  std::atomic<uint64_t> timed_out{0};  // half a request or an unread answer waited too long
  std::atomic<uint64_t> foreign{0};    // did not speak any protocol of ours
  std::atomic<uint64_t> displaced{0};  // idle, and closed because the server was full
};

class Loop {
 public:
  Loop(uint32_t index, const LoopLimits& limits, Application* application, Budget* budget, LoopStats* stats);
  ~Loop();

  void Start();
  // `tls`: null, or the TLS context the connection must use. `share`: null, or the share its bytes are charged to
  // besides the budget; the share's connection count falls when this connection ends.
  void Adopt(Fd fd, std::shared_ptr<const TlsContext> tls, std::shared_ptr<Share> share);
  // Makes the loop close long-idle connections soon, because others need their places.
  void MakeRoom();
  // Delivers an answer to a session: the one it waits for after kWait, or one that it owes.
  void Complete(ConnectionId id, std::string answer, bool close);
  void Wake();
  // Answers what has arrived and closes every connection once it has been silent for a tenth of a second (for drain_s
  // of 2 or more; less for shorter ones): requests that its peer sent earlier may still be in transit. Peers that keep
  // sending are closed between two requests after half a second. The thread ends when no connection is left.
  void Drain(double drain_s);
  void Stop();
  void Join();

  size_t connections() const { return connections_.load(std::memory_order_relaxed); }

 private:
  struct Connection;
  struct Adopted {
    Fd fd;
    std::shared_ptr<const TlsContext> tls;
    std::shared_ptr<Share> share;
  };
  struct Completion {
    ConnectionId id;
    std::string answer;
    bool close;
  };

  void Run();
  int WaitForEvents(epoll_event* events, int capacity);
  void HandleLarge(const epoll_event* events, int count);
  void TakeInbox();
  void Add(Adopted adopted);
  Connection* Find(const epoll_event& event);
  Connection* Find(uint32_t slot, uint64_t serial);
  void Handle(Connection& c, uint32_t events);
  void Receive(Connection& c);
  void ReceiveSecure(Connection& c);
  void RefuseSecure(Connection& c);
  void Advance(Connection& c, const uint8_t* data, size_t size, bool owned);
  // Processes what the connection's own buffer holds: at once, or in line if that is much.
  void AdvanceHeld(Connection& c);
  void AdvanceInLine(Connection& c);
  Step RunSession(Connection& c, const uint8_t* data, size_t size, bool owned, size_t* taken);
  void Settle(Connection& c, const Step& step, bool moved_on);
  bool Write(Connection& c);
  bool FlushPending(Connection& c);
  // `more`: the next completion is for the same connection.
  void Finish(Connection& c, const Completion& completion, bool more);
  bool MayEnd(const Connection& c) const;
  void Linger(Connection& c);
  void SetInterest(Connection& c);
  void SetInterest(Connection& c, uint32_t wanted);
  void Close(Connection& c);
  void Sweep();

  const uint32_t index_;
  const LoopLimits limits_;
  Application* const application_;
  Budget* const budget_;
  LoopStats* const stats_;

  Fd epoll_;
  Fd wake_;
  std::thread thread_;
  std::atomic<bool> stopping_{false};
  std::atomic<size_t> connections_{0};
  std::atomic<bool> is_crowded_{false};  // other clients need the places of idle connections

  std::mutex inbox_mutex_;
  std::vector<Adopted> adopted_;
  std::vector<Completion> completions_;
  uint64_t drain_quiet_ns_ = 0;  // how long a connection must be silent before a drain ends it; 0: no drain

  // Used by the loop's own thread only:
  std::vector<std::unique_ptr<Connection>> slots_;
  std::vector<uint32_t> free_slots_;
  uint64_t next_serial_ = 1;
  std::deque<ConnectionId> large_;  // connections whose next request is a large one
  std::unique_ptr<uint8_t[]> scratch_;
  Buffer out_;
  uint64_t now_ns_ = 0;
  uint64_t swept_ns_ = 0;
  bool has_deadlines_ = false;  // some connection may have to be closed on a timeout
  bool is_draining_ = false;
  uint64_t drain_began_ns_ = 0;
  uint64_t quiet_ns_ = 0;
};

}  // namespace elasticctr::net
