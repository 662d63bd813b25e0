// Listeners, one thread that accepts connections, and the loops that serve them. Each new connection goes to the loop
// with the fewest.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "net/loop/loop.h"

namespace elasticctr::net {

struct ServerOptions {
  std::string host = "127.0.0.1";
  std::vector<uint16_t> ports;  // 0: any free one. All of them speak every protocol.
  std::string unix_path;        // empty: none
  int unix_send_room = 0;       // as SetSendRoom; 0: the system's own
  size_t threads = 1;
  size_t max_connections = 20'000;
  // Per IP address (an IPv6 network of 64 bits counts as one); Unix sockets have no such limit. 0: a quarter of all,
  // but not below kLeastPerAddress.
  size_t max_connections_per_address = 0;
  uint64_t max_buffered_bytes = 1ull << 30;
  uint64_t max_buffered_bytes_per_address = 0;  // 0: a quarter
  LoopLimits limits;
  TlsOptions tls;  // for the ports; the Unix socket is never encrypted. No certificate: no encryption
};

inline constexpr size_t kLeastPerAddress = 256;

class Server {
 public:
  // Binds every address. Throws ConfigError or Unavailable.
  Server(const ServerOptions& options, Application* application);
  ~Server();

  void Start();
  // Stops accepting connections, answers what has arrived, and ends within drain_s.
  void Stop(double drain_s);
  // Makes every loop call Application::OnWake soon.
  void WakeAll();
  void Complete(ConnectionId id, std::string answer, bool close);
  // For new connections; existing ones keep their certificate. Throws FailedPrecondition if the server was created
  // without TLS.
  void SetTls(const TlsOptions& tls);

  const std::vector<uint16_t>& ports() const { return ports_; }
  size_t connections() const;
  size_t loops() const { return loops_.size(); }
  Budget& budget() { return budget_; }
  const Budget& budget() const { return budget_; }
  const LoopStats& stats() const { return stats_; }

 private:
  void Accept();
  void AcceptFromAll(const std::vector<pollfd>* ready);
  void AcceptFrom(const Fd& listener, bool is_unix, const std::shared_ptr<const TlsContext>& tls);
  // The share that counts connections of an address. Called by the acceptor's thread only.
  std::shared_ptr<Share> FindShare(const sockaddr_storage& address);

  const ServerOptions options_;
  Budget budget_;
  LoopStats stats_;
  std::vector<Fd> listeners_;
  std::vector<uint16_t> ports_;
  Fd spare_;  // closed when descriptors run out, so that the connection can be accepted and closed
  Fd wake_;
  std::vector<std::unique_ptr<Loop>> loops_;
  std::unordered_map<std::string, std::shared_ptr<Share>> shares_;  // by address
  size_t forget_at_ = 0;                                            // search for idle shares at this many
  std::thread acceptor_;
  std::atomic<bool> stopping_{false};
  std::mutex tls_mutex_;
  std::shared_ptr<const TlsContext> tls_;
};

}  // namespace elasticctr::net
