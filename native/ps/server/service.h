// A pserver: a shard behind event loops that speak docs/formats/ps-wire.md, over TCP and a Unix socket.
//
// Pulls and pushes run on the loops' threads. A push that waits for its group, or for the standby, is answered later
// without blocking other connections. Saving, loading and other orders run on a separate thread.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "net/loop/server.h"
#include "ps/server/control.h"
#include "ps/shard/shard.h"
#include "ps/standby/follower.h"
#include "ps/standby/replica.h"
#include "util/file.h"
#include "util/secret.h"

namespace elasticctr::ps {

struct ServiceOptions {
  net::ServerOptions net;
  ShardSettings shard;
  std::string token;     // empty: no authentication
  uint64_t job = 0;      // number of the job's identity
  std::string identity;  // its text; a client that attaches sends it or its digest
  std::string digest;
  std::string build;
  std::string strategy;
  bool is_standby = false;
  ReplicaOptions replica;
  std::string files;    // directory that orders to save and load are confined to; empty: any
  std::string scratch;  // directory for copies of the state sent to or received by a standby; empty: the system's
  // A standby connects to its primary with the server's own certificate if an authority is given.
  std::string tls_ca;
  bool tls_checks_host = true;
};

class Service : public net::Application {
 public:
  // Binds. Throws ConfigError, Unavailable (an address is taken).
  explicit Service(const ServiceOptions& options);
  ~Service() override;

  // Starts answering; pulls and pushes once it is ready.
  void Start();
  void Stop(double drain_s);
  // Certificate and key for new connections. Throws FailedPrecondition if the server does not use TLS.
  void SetTls(const net::TlsOptions& tls) { server_->SetTls(tls); }

  const std::vector<uint16_t>& ports() const { return server_->ports(); }
  // Loads its part of a checkpoint, or nothing if the path is empty, and starts serving: this promotes a standby to
  // primary. Work started in another era is refused from then on.
  void Load(const std::string& directory, uint64_t era = 0);
  void SetReady() { is_ready_.store(true); }
  bool is_ready() const { return is_ready_.load(); }
  bool is_primary() const { return is_primary_.load(); }
  bool is_stop_asked() const { return is_stop_asked_.load(); }
  // The standby was given up, and pushes are held until the coordinator, which decides on takeovers, knows.
  bool is_dropping() const { return replica_->is_dropping(); }
  void ConfirmDrop() { replica_->ConfirmDrop(); }
  std::string stats() const;  // JSON

  // For sessions and orders.
  const ServiceOptions& options() const { return options_; }
  const Secret& secret() const { return secret_; }
  Shard& shard() { return *shard_; }
  net::Server& server() { return *server_; }
  Control& control() { return *control_; }
  Replica& replica() { return *replica_; }
  // Throws a Refusal unless this pserver serves pulls and pushes now.
  void RequireServing() const;
  // Throws a Refusal if a later coordinator has connected; remembers the latest.
  void CheckIncarnation(uint64_t incarnation);
  // Carries out an order. Blocks: called on the orders' thread. Returns JSON.
  std::string Obey(std::string_view order);
  // Orders in the lifecycle of a standby. Throw FailedPrecondition. A primary that is serving cannot follow another.
  void Follow(const std::string& primary);
  void Promote();
  // For a standby that starts, on the orders' thread: returns the list of files to copy, then pieces of them.
  std::string BeginTransfer(std::atomic<uint64_t>* session);
  std::string ReadTransfer(uint64_t session, uint32_t file, uint64_t offset) const;

  std::unique_ptr<net::Session> Open(net::Protocol protocol, net::ConnectionId id, int fd) override;
  void OnWake(size_t) override {}
  void OnAnswered(size_t, uint64_t) override {}
  uint32_t silent_limit_s() const override { return secret_.is_set() ? 60 : 0; }

 private:
  struct Transfer {
    uint64_t session = 0;
    std::vector<File> files;  // unlinked: removed when the last holder closes them
  };
  std::string scratch() const;
  // The directory an order names, with links resolved. Throws FailedPrecondition if it is outside of `files`.
  std::string Confine(const std::string& directory) const;
  void AppendStandbyStats(std::string* out) const;

  const ServiceOptions options_;
  const Secret secret_;
  const std::shared_ptr<net::TlsClient> tls_;
  std::atomic<bool> is_ready_{false}, is_primary_, is_stop_asked_{false};
  std::atomic<uint64_t> incarnation_{0};
  std::unique_ptr<net::Server> server_;  // destroyed after the shard, whose last answers it sends
  std::unique_ptr<Replica> replica_;
  std::unique_ptr<Shard> shard_;
  mutable std::mutex standby_mutex_;  // guards the two below
  std::shared_ptr<const Transfer> transfer_;
  std::unique_ptr<Follower> follower_;
  std::unique_ptr<Control> control_;
};

}  // namespace elasticctr::ps
