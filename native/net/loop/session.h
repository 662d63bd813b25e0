// What the event loops need from a program that answers requests. Loops know sockets, buffers and time; sessions know
// one protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "net/buffer.h"
#include "net/loop/budget.h"
#include "net/loop/sniff.h"

namespace elasticctr::net {

// A connection's name outside its loop. Never used twice.
struct ConnectionId {
  uint32_t loop = 0;
  uint32_t slot = 0;
  uint64_t serial = 0;
};

enum class Next : uint8_t {
  kRead,   // wants more input
  kFlush,  // made enough output for one write; call again once it is gone
  kWait,   // an answer is being made elsewhere; Loop::Complete brings it
  kClose,  // write what there is, then close
};

struct Step {
  size_t consumed = 0;  // bytes of the input that are done with
  size_t need = 0;      // with kRead: bytes the next request takes in all, if that is known
  Next next = Next::kRead;
  bool in_request = false;  // with kRead: the last consumed bytes are of a request that is not whole yet
  bool is_large = false;    // with kRead and kFlush: the request that comes next is a large one; others go first
};

// One connection's protocol state. Called by its loop's thread alone.
class Session {
 public:
  virtual ~Session() = default;
  // Takes as many whole requests as there are at `data` and appends their answers to `out`. What is not consumed comes
  // again, with more behind it. `received_ns` is when the last of these bytes were read (CLOCK_MONOTONIC).
  virtual Step Consume(const uint8_t* data, size_t size, uint64_t received_ns, Buffer* out) = 0;
  // Seconds without a byte after which the connection may be closed; 0: never.
  virtual uint32_t idle_limit_s() const { return 0; }
  // Answers that Loop::Complete still has to bring, of a session that reads on meanwhile (protocols whose answers may
  // come in any order). While there are some the connection counts as busy. kWait stops reading until one has come.
  virtual size_t owed() const { return 0; }
  // One of them is complete and is sent unchanged.
  virtual void OnAnswer() {}

  // Where bytes that wait for this connection are charged. The loop charges its own buffers there.
  const Account& account() const { return account_; }
  void set_account(Account account) { account_ = std::move(account); }

 private:
  Account account_;
};

class Application {
 public:
  virtual ~Application() = default;
  // A session for a new connection on a loop, told by its first bytes; null refuses it. `fd` is the loop's: PeerOf(fd)
  // says who is there.
  virtual std::unique_ptr<Session> Open(Protocol protocol, ConnectionId id, int fd) = 0;
  // On a loop's own thread: at its start and after Server::WakeAll.
  virtual void OnWake(size_t loop) = 0;
  // On a loop's own thread: answers to what was read at received_ns have just gone to the system.
  virtual void OnAnswered(size_t loop, uint64_t received_ns) = 0;
  // On a loop's own thread: microseconds to leave sockets alone before the next round, so that a loop which only
  // refuses takes what comes in fewer, larger rounds and leaves the cores to those who answer.
  virtual uint32_t pause_us(size_t) { return 0; }
  // Seconds a connection may stay open without having sent anything; 0: for ever.
  virtual uint32_t silent_limit_s() const = 0;
};

// Answers above this go out before the next request is taken, so that the buffer stays in cache.
inline constexpr size_t kFlushBytes = 256 * 1024;

}  // namespace elasticctr::net
