// Sockets for the server and its clients: non-blocking, closed on exec, without Nagle's delay.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace elasticctr::net {

inline constexpr int kBacklog = 4096;  // connections that may wait to be accepted, per listener

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { Close(); }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void Close();

 private:
  int fd_ = -1;
};

// Listens on host:port (port 0: any free one). Throws ConfigError for an invalid host, Unavailable if the port is
// taken.
Fd ListenTcp(const std::string& host, uint16_t port);
// Listens on a Unix socket of mode 0660. Replaces a socket file without a listener; throws Unavailable if it has one,
// ConfigError if something else is at that path.
Fd ListenUnix(const std::string& path);
uint16_t PortOf(const Fd& listener);

// The peer's address, as host:port; "unix" for a Unix socket.
std::string PeerOf(int fd);

// Prepares an accepted connection.
void TuneConnection(int fd);
// Lets a Unix socket hold this many bytes that were sent and not read yet, or as many as the system allows
// (net.core.wmem_max). Otherwise a sender of long frames would wake up for every part of one.
void SetSendRoom(int fd, int bytes);

Fd MakeEventFd();
void SignalEventFd(const Fd& fd);
void DrainEventFd(const Fd& fd);

// Raises the soft limit of open files to the hard limit and returns it.
uint64_t RaiseFileLimit();

// CLOCK_MONOTONIC.
uint64_t NowNs();

}  // namespace elasticctr::net
