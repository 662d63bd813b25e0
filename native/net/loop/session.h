// The interface between the event loops and a program that answers requests. Loops handle sockets, buffers and time;
// sessions handle one protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "net/buffer.h"
#include "net/loop/budget.h"
#include "net/loop/sniff.h"

namespace elasticctr::net {

// Identifies a connection outside its loop. Never reused.
struct ConnectionId {
  uint32_t loop = 0;
  uint32_t slot = 0;
  uint64_t serial = 0;
};

enum class Next : uint8_t {
  kRead,   // wants more input
  kFlush,  // has produced enough output for one write; call again once it is sent
  kWait,   // another thread makes the answer; Loop::Complete delivers it
  kClose,  // write the pending output, then close
};

struct Step {
  size_t consumed = 0;  // bytes of the input that are processed
  size_t need = 0;      // with kRead: the total size of the next request, if known
  Next next = Next::kRead;
  bool in_request = false;  // with kRead: the last consumed bytes belong to a request that is not complete yet
  bool is_large = false;    // with kRead and kFlush: the next request is a large one; others go first
};

// One connection's protocol state. Called only by its loop's thread.
class Session {
 public:
  virtual ~Session() = default;
  // Takes all whole requests at `data` and appends their answers to `out`. Unconsumed bytes are passed again, followed
  // by more. `received_ns` is when the last of these bytes were read (CLOCK_MONOTONIC).
  virtual Step Consume(const uint8_t* data, size_t size, uint64_t received_ns, Buffer* out) = 0;
  // Seconds without a byte after which the connection may be closed; 0: never.
  virtual uint32_t idle_limit_s() const { return 0; }
  // Answers that Loop::Complete still has to deliver, for a session that keeps reading meanwhile (protocols whose
  // answers may come in any order). While there are any, the connection counts as busy. kWait stops reading until one
  // has come.
  virtual size_t owed() const { return 0; }
  // Called when one of the owed answers is complete; it is sent unchanged.
  virtual void OnAnswer() {}

  // The account that bytes waiting for this connection are charged to. The loop charges its own buffers there.
  const Account& account() const { return account_; }
  void set_account(Account account) { account_ = std::move(account); }

 private:
  Account account_;
};

class Application {
 public:
  virtual ~Application() = default;
  // A session for a new connection on a loop, chosen by its first bytes; null refuses it. `fd` belongs to the loop:
  // PeerOf(fd) names the peer.
  virtual std::unique_ptr<Session> Open(Protocol protocol, ConnectionId id, int fd) = 0;
  // Called on a loop's own thread: at its start and after Server::WakeAll.
  virtual void OnWake(size_t loop) = 0;
  // Called on a loop's own thread: answers to what was read at received_ns have just been passed to the system.
  virtual void OnAnswered(size_t loop, uint64_t received_ns) = 0;
  // Called on a loop's own thread: microseconds to wait before reading sockets again. A loop that only refuses requests
  // then takes them in fewer, larger rounds and leaves the cores to those that answer.
  virtual uint32_t pause_us(size_t) { return 0; }
  // Seconds a connection may stay open without having sent anything; 0: no limit.
  virtual uint32_t silent_limit_s() const = 0;
};

// Answers above this size are sent before the next request is taken, so that the buffer stays in cache.
inline constexpr size_t kFlushBytes = 256 * 1024;

}  // namespace elasticctr::net
