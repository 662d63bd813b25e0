// One non-blocking socket to a server, plain or with TLS. Used by one call at a time; the destructor closes it.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <string>

#include "net/address.h"
#include "net/tls.h"

namespace elasticctr::net {

// The number of forks between this process and the one that loaded the library. A child must not use its parent's
// sockets or threads.
uint64_t ForkGeneration();

class Connection {
 public:
  // Starts connecting. Throws Unavailable.
  explicit Connection(const SocketAddress& address);
  // The same with TLS to `host`, whose certificate is checked. Plain if `tls` is null or the address is a Unix socket.
  Connection(const SocketAddress& address, TlsClient* tls, const std::string& host);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int fd() const { return fd_; }
  uint64_t generation() const { return generation_; }
  bool greeted() const { return greeted_; }
  void set_greeted() { greeted_ = true; }

  // The events to wait for (POLLIN, POLLOUT) before FinishConnecting.
  short connect_events() const;
  // Call when one of connect_events() is ready. Returns true when requests may be sent, false if there is more to wait
  // for. Throws Unavailable if the connection failed or either end refused the other.
  bool FinishConnecting();
  // Return the number of bytes sent or received; 0: none for now. Fewer than requested: the socket has no more room or
  // bytes. Throw Unavailable when the peer has closed the connection.
  size_t Send(const iovec* buffers, int count);
  size_t Receive(iovec* buffers, int count);
  // With TLS, bytes that Send accepted may still wait for room in the socket: wait for POLLOUT and call Flush.
  bool has_unsent() const { return secure_ != nullptr && !secure_->out.empty(); }
  void Flush();
  // With TLS, decrypted bytes may be waiting for Receive although poll reports none.
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
    std::string ending;  // why no more bytes can come; empty: they can
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
