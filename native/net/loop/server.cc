#include "net/loop/server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "util/signals.h"
#include "util/status.h"

namespace elasticctr::net {

namespace {

constexpr size_t kFirstShares = 1024;

ServerOptions WithDefaults(ServerOptions options) {
  if (options.max_connections_per_address == 0) {
    options.max_connections_per_address = std::max(options.max_connections / 4, kLeastPerAddress);
  }
  if (options.max_buffered_bytes_per_address == 0) {
    options.max_buffered_bytes_per_address = options.max_buffered_bytes / 4;
  }
  return options;
}

}  // namespace

Server::Server(const ServerOptions& options, Application* application)
    : options_(WithDefaults(options)),
      budget_(options.max_buffered_bytes),
      spare_(::open("/dev/null", O_RDONLY | O_CLOEXEC)),
      wake_(MakeEventFd()),
      tls_(options.tls.is_set() ? std::make_shared<const TlsContext>(options.tls) : nullptr) {
  RaiseFileLimit();
  for (uint16_t port : options_.ports) {
    listeners_.push_back(ListenTcp(options_.host, port));
    ports_.push_back(PortOf(listeners_.back()));
  }
  if (!options_.unix_path.empty()) listeners_.push_back(ListenUnix(options_.unix_path));
  if (listeners_.empty()) throw Error(Code::kConfig, "a server needs a port or a Unix socket to listen on");
  for (size_t i = 0; i < options_.threads; ++i) {
    loops_.push_back(std::make_unique<Loop>(static_cast<uint32_t>(i), options_.limits, application, &budget_, &stats_));
  }
}

Server::~Server() { Stop(0); }

void Server::Start() {
  for (auto& loop : loops_) loop->Start();
  const BlockedSignals blocked;
  acceptor_ = std::thread([this] { Accept(); });
}

void Server::Stop(double drain_s) {
  if (stopping_.exchange(true)) return;
  SignalEventFd(wake_);
  bool was_started = acceptor_.joinable();
  if (was_started) acceptor_.join();
  listeners_.clear();
  if (!options_.unix_path.empty()) ::unlink(options_.unix_path.c_str());
  if (was_started && drain_s > 0) {
    for (auto& loop : loops_) loop->Drain(drain_s);
    auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(drain_s);
    while (connections() != 0 && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  for (auto& loop : loops_) loop->Stop();
  for (auto& loop : loops_) loop->Join();
}

void Server::WakeAll() {
  for (auto& loop : loops_) loop->Wake();
}

void Server::Complete(ConnectionId id, std::string answer, bool close) {
  loops_[id.loop]->Complete(id, std::move(answer), close);
}

void Server::SetTls(const TlsOptions& tls) {
  if (!options_.tls.is_set()) {
    throw Error(Code::kFailedPrecondition, "the server was started without TLS; its ports cannot change to it");
  }
  auto context = std::make_shared<const TlsContext>(tls);
  std::lock_guard lock(tls_mutex_);
  tls_ = std::move(context);
}

size_t Server::connections() const {
  size_t sum = 0;
  for (const auto& loop : loops_) sum += loop->connections();
  return sum;
}

void Server::Accept() {
  std::vector<pollfd> waiting;
  for (const Fd& listener : listeners_) waiting.push_back({listener.get(), POLLIN, 0});
  waiting.push_back({wake_.get(), POLLIN, 0});
  while (!stopping_.load()) {
    if (::poll(waiting.data(), waiting.size(), -1) < 0) continue;
    AcceptFromAll(&waiting);
  }
  // Clients that are connected but not accepted yet still get answers.
  AcceptFromAll(nullptr);
}

void Server::AcceptFromAll(const std::vector<pollfd>* ready) {
  std::shared_ptr<const TlsContext> tls;
  {
    std::lock_guard lock(tls_mutex_);
    tls = tls_;
  }
  for (size_t i = 0; i < listeners_.size(); ++i) {
    const bool is_unix = i >= ports_.size();  // the Unix socket comes after the ports
    if (ready == nullptr || (*ready)[i].revents != 0) AcceptFrom(listeners_[i], is_unix, is_unix ? nullptr : tls);
  }
}

void Server::AcceptFrom(const Fd& listener, bool is_unix, const std::shared_ptr<const TlsContext>& tls) {
  // At most as many as can wait at once, so that a flood cannot delay the end of this thread.
  for (int taken = 0; taken < kBacklog; ++taken) {
    sockaddr_storage address{};
    socklen_t address_bytes = sizeof(address);
    Fd fd(
        ::accept4(listener.get(), reinterpret_cast<sockaddr*>(&address), &address_bytes, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EMFILE || errno == ENFILE) {
        // Without a free descriptor the waiting connection would wake this thread forever.
        spare_.Close();
        Fd refused(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
        refused.Close();
        spare_ = Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        stats_.refused.fetch_add(1, std::memory_order_relaxed);
        continue;
      }
      return;
    }
    std::shared_ptr<Share> share = is_unix ? nullptr : FindShare(address);
    const bool is_greedy =
        share != nullptr && share->connections.load(std::memory_order_relaxed) >= options_.max_connections_per_address;
    if (is_greedy || connections() >= options_.max_connections) {
      stats_.refused.fetch_add(1, std::memory_order_relaxed);
      // A client with too many connections may not displace others.
      if (!is_greedy) {
        for (auto& loop : loops_) loop->MakeRoom();
      }
      continue;
    }
    if (share != nullptr) share->connections.fetch_add(1, std::memory_order_relaxed);
    TuneConnection(fd.get());
    if (is_unix && options_.unix_send_room > 0) SetSendRoom(fd.get(), options_.unix_send_room);
    stats_.accepted.fetch_add(1, std::memory_order_relaxed);
    auto least = std::min_element(loops_.begin(), loops_.end(),
                                  [](const auto& a, const auto& b) { return a->connections() < b->connections(); });
    (*least)->Adopt(std::move(fd), tls, std::move(share));
  }
}

std::shared_ptr<Share> Server::FindShare(const sockaddr_storage& address) {
  std::string key;
  if (address.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    key.assign(reinterpret_cast<const char*>(&four.sin_addr), sizeof(four.sin_addr));
  } else if (address.ss_family == AF_INET6) {
    // An owner of one IPv6 address has a whole network of them. IPv4 inside IPv6 is distinguished by its last bytes.
    const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
    const bool is_mapped = IN6_IS_ADDR_V4MAPPED(&six.sin6_addr);
    key.assign(reinterpret_cast<const char*>(&six.sin6_addr) + (is_mapped ? 12 : 0), is_mapped ? 4 : 8);
  } else {
    return nullptr;
  }
  // Shares without connections are removed whenever the number of shares has doubled.
  if (shares_.size() >= std::max(forget_at_, kFirstShares)) {
    std::erase_if(shares_, [](const auto& one) {
      return one.second->connections.load(std::memory_order_relaxed) == 0 && one.second->buffered.used() == 0;
    });
    forget_at_ = 2 * shares_.size();
  }
  std::shared_ptr<Share>& share = shares_[key];
  if (share == nullptr) share = std::make_shared<Share>(options_.max_buffered_bytes_per_address);
  return share;
}

}  // namespace elasticctr::net
