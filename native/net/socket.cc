#include "net/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "util/status.h"

namespace elasticctr::net {
namespace {

std::string Reason() { return std::strerror(errno); }

void SetOption(int fd, int level, int name, int value) { setsockopt(fd, level, name, &value, sizeof value); }

}  // namespace

void Fd::Close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Fd ListenTcp(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  std::string service = std::to_string(port);
  if (int rc = getaddrinfo(host.c_str(), service.c_str(), &hints, &found); rc != 0) {
    throw Error(Code::kConfig, "cannot listen on host '" + host + "': " + gai_strerror(rc) +
                                   "; use an address of this machine, or 0.0.0.0");
  }
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, &freeaddrinfo);
  Fd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) throw Error(Code::kUnavailable, "cannot make a socket: " + Reason());
  SetOption(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(fd.get(), found->ai_addr, found->ai_addrlen) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    throw Error(Code::kUnavailable, "cannot listen on " + host + ":" + service + ": " + Reason() +
                                        "; end what uses the port, or take another");
  }
  return fd;
}

Fd ListenUnix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    throw Error(Code::kConfig, "Unix socket path '" + path + "' must have 1 to " +
                                   std::to_string(sizeof address.sun_path - 1) + " bytes");
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const auto* name = reinterpret_cast<const sockaddr*>(&address);
  struct stat there{};
  if (::lstat(path.c_str(), &there) == 0) {
    if (!S_ISSOCK(there.st_mode))
      throw Error(Code::kConfig, path + " is there and is no socket; give another path for --unix");
    Fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (::connect(probe.get(), name, sizeof address) == 0 || errno != ECONNREFUSED) {
      throw Error(Code::kUnavailable,
                  "another process listens on " + path + "; end it, or give another path for --unix");
    }
    ::unlink(path.c_str());
  }
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  // The file is created with this mode minus the process' umask, which is left alone; if the umask removes the group's
  // permission, it is added again. Nobody can connect before the socket listens.
  constexpr mode_t kMode = 0660;
  if (!fd || ::fchmod(fd.get(), kMode) != 0 || ::bind(fd.get(), name, sizeof address) != 0 ||
      ::chmod(path.c_str(), kMode) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    throw Error(Code::kUnavailable, "cannot listen on " + path + ": " + Reason());
  }
  return fd;
}

uint16_t PortOf(const Fd& listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6*>(&address)->sin6_port);
  return 0;
}

std::string PeerOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "gone";
  char host[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&address);
    ::inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
    return std::string(host) + ":" + std::to_string(ntohs(v4->sin_port));
  }
  if (address.ss_family == AF_INET6) {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&address);
    ::inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
    return "[" + std::string(host) + "]:" + std::to_string(ntohs(v6->sin6_port));
  }
  return "unix";
}

void TuneConnection(int fd) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  // Detects a vanished peer after some minutes.
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, 120);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, 30);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
}

void SetSendRoom(int fd, int bytes) { SetOption(fd, SOL_SOCKET, SO_SNDBUF, bytes); }

Fd MakeEventFd() {
  Fd fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!fd) throw Error(Code::kInternal, "cannot make an eventfd: " + Reason() + "; raise the limit of open files");
  return fd;
}

void SignalEventFd(const Fd& fd) {
  uint64_t one = 1;
  [[maybe_unused]] ssize_t n = ::write(fd.get(), &one, sizeof one);
}

void DrainEventFd(const Fd& fd) {
  uint64_t count;
  [[maybe_unused]] ssize_t n = ::read(fd.get(), &count, sizeof count);
}

uint64_t RaiseFileLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

uint64_t NowNs() {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

}  // namespace elasticctr::net
