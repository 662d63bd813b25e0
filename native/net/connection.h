// One socket to a server, never blocking, plain or with TLS. Used by one call at a time; the destructor closes it.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <string>

#include "net/address.h"
#include "net/tls.h"

namespace elasticctr::net {

// Counts the forks this process descends from since it was loaded. A child must not use its parent's sockets or
// threads.
uint64_t ForkGeneration();

class Connection {
 public:
  // Starts to connect. Throws Unavailable.
  explicit Connection(const SocketAddress& address);
  // The same with TLS to `host`, whose certificate is checked. `tls` null, or a Unix socket: without.
  Connection(const SocketAddress& address, TlsClient* tls, const std::string& host);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int fd() const { return fd_; }
  uint64_t generation() const { return generation_; }
  bool greeted() const { return greeted_; }
  void set_greeted() { greeted_ = true; }

  // What to wait for (POLLIN, POLLOUT) before FinishConnecting.
  short connect_events() const;
  // Once the socket is ready for that: true when requests may be sent, false if there is more to wait for. Throws
  // Unavailable if the connection was not made, or one end refuses the other.
  bool FinishConnecting();
  // Bytes sent or received; 0: none for now. Less than asked for: the socket has no more room or bytes. Throw
  // Unavailable when the other side is gone.
  size_t Send(const iovec* buffers, int count);
  size_t Receive(iovec* buffers, int count);
  // With TLS, what Send took may still wait for room in the socket: wait for that and Flush.
  bool has_unsent() const { return secure_ != nullptr && !secure_->out.empty(); }
  void Flush();
  // With TLS, bytes to Receive may be here that the socket says nothing of.
  bool has_received() const { return secure_ != nullptr && !secure_->in.empty(); }

 private:
  struct Secure {
    Secure(std::shared_ptr<const TlsContext> tls, const std::string& host)
        : context(std::move(tls)), stream(*context, host) {}
    const std::shared_ptr<const TlsContext> context;
    TlsStream stream;
    Buffer in;   // decrypted
    Buffer out;  // encrypted
    bool is_connected = false;
    std::string ending;  // why nothing more comes; empty: it may
  };

  size_t SendSecure(const iovec* buffers, int count);
  size_t ReceiveSecure(iovec* buffers, int count);
  bool ReadSecure();
  void End(std::string why);

  int fd_;
  uint64_t generation_;
  bool greeted_ = false;
  std::unique_ptr<Secure> secure_;  // null: plain
};

}  // namespace elasticctr::net
