#include "net/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

#include "util/status.h"

namespace elasticctr::net {
namespace {

std::atomic<uint64_t> generation{0};

[[noreturn]] void Gone(const char* what, int error) {
  throw Error(Code::kUnavailable, std::string(what) + ": " + std::strerror(error));
}

}  // namespace

uint64_t ForkGeneration() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { ++generation; });
  static_cast<void>(registered);
  return generation.load(std::memory_order_relaxed);
}

Connection::Connection(const SocketAddress& address) : generation_(ForkGeneration()) {
  if (address.length == 0) throw Error(Code::kUnavailable, "its name is not resolved");
  fd_ = socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd_ < 0) Gone("no socket", errno);
  if (address.storage.ss_family != AF_UNIX) {
    const int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  if (connect(fd_, reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0 && errno != EINPROGRESS) {
    const int error = errno;
    close(fd_);
    Gone("no connection", error);
  }
}

Connection::~Connection() { close(fd_); }

void Connection::FinishConnecting() {
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0) Gone("no connection", error);
}

size_t Connection::Send(const iovec* buffers, int count) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(buffers);
  message.msg_iovlen = static_cast<size_t>(count);
  const ssize_t sent = sendmsg(fd_, &message, MSG_NOSIGNAL);
  if (sent >= 0) return static_cast<size_t>(sent);
  if (errno == EAGAIN || errno == EINTR || errno == ENOTCONN) return 0;
  Gone("the connection broke", errno);
}

size_t Connection::Receive(iovec* buffers, int count) {
  const ssize_t received = readv(fd_, buffers, count);
  if (received > 0) return static_cast<size_t>(received);
  if (received == 0) throw Error(Code::kUnavailable, "closed the connection");
  if (errno == EAGAIN || errno == EINTR) return 0;
  Gone("the connection broke", errno);
}

}  // namespace elasticctr::net
