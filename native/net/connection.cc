#include "net/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

#include "util/status.h"

namespace elasticctr::net {
namespace {

constexpr size_t kReadBytes = 256 * 1024;
constexpr size_t kMostUnsent = 256 * 1024;  // limit of encrypted bytes that wait for the socket

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

Connection::Connection(const SocketAddress& address) : Connection(address, nullptr, "") {}

Connection::Connection(const SocketAddress& address, TlsClient* tls, const std::string& host)
    : generation_(ForkGeneration()) {
  if (address.length == 0) throw Error(Code::kUnavailable, "its name is not resolved");
  if (tls != nullptr && address.storage.ss_family != AF_UNIX) secure_ = std::make_unique<Secure>(tls->Get(), host);
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

short Connection::connect_events() const {
  if (secure_ == nullptr || !secure_->is_connected) return POLLOUT;
  return static_cast<short>(secure_->out.empty() ? POLLIN : POLLIN | POLLOUT);
}

bool Connection::FinishConnecting() {
  if (secure_ != nullptr && secure_->is_connected) {
    Flush();
    ReadSecure();
    if (!secure_->ending.empty()) throw Error(Code::kUnavailable, secure_->ending);
    Flush();
    return secure_->stream.is_open() && secure_->out.empty();
  }
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0) Gone("no connection", error);
  if (secure_ == nullptr) return true;
  secure_->is_connected = true;
  secure_->stream.Begin(&secure_->out);
  Flush();
  return false;
}

size_t Connection::Send(const iovec* buffers, int count) {
  if (secure_ != nullptr) return SendSecure(buffers, count);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(buffers);
  message.msg_iovlen = static_cast<size_t>(count);
  const ssize_t sent = sendmsg(fd_, &message, MSG_NOSIGNAL);
  if (sent >= 0) return static_cast<size_t>(sent);
  if (errno == EAGAIN || errno == EINTR || errno == ENOTCONN) return 0;
  Gone("the connection broke", errno);
}

size_t Connection::Receive(iovec* buffers, int count) {
  if (secure_ != nullptr) return ReceiveSecure(buffers, count);
  const ssize_t received = readv(fd_, buffers, count);
  if (received > 0) return static_cast<size_t>(received);
  if (received == 0) throw Error(Code::kUnavailable, "closed the connection");
  if (errno == EAGAIN || errno == EINTR) return 0;
  Gone("the connection broke", errno);
}

size_t Connection::SendSecure(const iovec* buffers, int count) {
  Flush();
  size_t taken = 0;
  for (int i = 0; i < count; ++i) {
    const auto* at = static_cast<const uint8_t*>(buffers[i].iov_base);
    for (size_t left = buffers[i].iov_len; left > 0;) {
      if (secure_->out.size() >= kMostUnsent) Flush();
      if (secure_->out.size() >= kMostUnsent) return taken;
      const size_t part = std::min(left, kMostUnsent);
      if (!secure_->stream.Send(at, part, &secure_->out)) throw Error(Code::kUnavailable, secure_->stream.trouble());
      at += part;
      left -= part;
      taken += part;
    }
  }
  Flush();
  return taken;
}

void Connection::Flush() {
  if (secure_ == nullptr) return;
  while (!secure_->out.empty()) {
    const ssize_t sent = send(fd_, secure_->out.data(), secure_->out.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == ENOTCONN)) return;
    if (sent < 0) {
      const int error = errno;
      // A server that refuses the connection sends the reason before it closes it.
      while (ReadSecure()) {
      }
      End(std::string("the connection broke: ") + std::strerror(error));
      throw Error(Code::kUnavailable, secure_->ending);
    }
    secure_->out.Consume(static_cast<size_t>(sent));
  }
  secure_->out.Release();
}

void Connection::End(std::string why) {
  if (secure_->ending.empty()) secure_->ending = std::move(why);
}

// Reads once from the socket. False: nothing available, or the end, which sets `ending`.
bool Connection::ReadSecure() {
  if (!secure_->ending.empty()) return false;
  thread_local const std::unique_ptr<uint8_t[]> scratch(new uint8_t[kReadBytes]);
  ssize_t received;
  do {
    received = recv(fd_, scratch.get(), kReadBytes, 0);
  } while (received < 0 && errno == EINTR);
  TlsStream& stream = secure_->stream;
  if (received < 0) {
    if (errno != EAGAIN) End(std::string("the connection broke: ") + std::strerror(errno));
    return false;
  }
  if (received == 0) {
    End(stream.is_open() ? "closed the connection"
                         : "closed the connection in the TLS handshake; does that port speak TLS?");
    return false;
  }
  if (!stream.Receive(scratch.get(), static_cast<size_t>(received), &secure_->in, &secure_->out)) {
    End(stream.trouble());
    const ssize_t ignored = send(fd_, secure_->out.data(), secure_->out.size(), MSG_NOSIGNAL);  // the closing alert
    static_cast<void>(ignored);
    secure_->out.Clear();
  } else if (stream.is_ended()) {
    End("closed the connection");
  }
  return true;
}

size_t Connection::ReceiveSecure(iovec* buffers, int count) {
  Buffer& in = secure_->in;
  size_t taken = 0;
  for (int i = 0; i < count; ++i) {
    auto* to = static_cast<uint8_t*>(buffers[i].iov_base);
    for (size_t left = buffers[i].iov_len; left > 0;) {
      if (in.empty() && !ReadSecure()) {
        // Bytes received before the end still count.
        if (taken == 0 && !secure_->ending.empty()) throw Error(Code::kUnavailable, secure_->ending);
        return taken;
      }
      const size_t part = std::min(left, in.size());
      std::memcpy(to, in.data(), part);
      in.Consume(part);
      to += part;
      left -= part;
      taken += part;
    }
  }
  if (in.empty()) in.Release();
  return taken;
}

}  // namespace elasticctr::net
