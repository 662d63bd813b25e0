// One socket to a server, never blocking. Used by one call at a time; closed when it goes.
#pragma once

#include <sys/uio.h>

#include <cstdint>

#include "net/address.h"

namespace elasticctr::net {

// Counts the forks this process descends from since it was loaded. A child must not use its parent's sockets or
// threads.
uint64_t ForkGeneration();

class Connection {
 public:
  // Starts to connect. Throws Unavailable.
  explicit Connection(const SocketAddress& address);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int fd() const { return fd_; }
  uint64_t generation() const { return generation_; }
  bool greeted() const { return greeted_; }
  void set_greeted() { greeted_ = true; }

  // Once the socket is writable. Throws Unavailable if the connection was not made.
  void FinishConnecting();
  // Bytes sent or received; 0: none for now. Throw Unavailable when the other side is gone.
  size_t Send(const iovec* buffers, int count);
  size_t Receive(iovec* buffers, int count);

 private:
  int fd_;
  uint64_t generation_;
  bool greeted_ = false;
};

}  // namespace elasticctr::net
