// A pserver: a shard behind event loops that speak docs/formats/ps-wire.md, over TCP and a Unix socket.
//
// Pulls and pushes are done on the loops' threads; a push that waits for its group, or for the standby, is answered
// later without holding up other connections. Saving, loading and other orders run on a thread of their own.
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
  std::string token;     // empty: anybody may ask
  uint64_t job = 0;      // number of the job's identity
  std::string identity;  // its text; who attaches shows it or its digest
  std::string digest;
  std::string build;
  std::string strategy;
  bool is_standby = false;
  ReplicaOptions replica;
  std::string files;    // directory that orders to save and load stay within; empty: any
  std::string scratch;  // directory for copies of the state on their way to or from a standby; empty: the system's
  // A standby calls its primary with the server's own certificate if an authority is given.
  std::string tls_ca;
  bool tls_checks_host = true;
};

class Service : public net::Application {
 public:
  // Binds. Throws ConfigError, Unavailable (an address is taken).
  explicit Service(const ServiceOptions& options);
  ~Service() override;

  // Answers from now on; pulls and pushes once it is ready.
  void Start();
  void Stop(double drain_s);
  // Certificate and key for connections made from now on. Throws FailedPrecondition if the server speaks no TLS.
  void SetTls(const net::TlsOptions& tls) { server_->SetTls(tls); }

  const std::vector<uint16_t>& ports() const { return server_->ports(); }
  // Loads its part of a checkpoint, or nothing if the path is empty, and serves: a standby becomes the primary by it.
  // Work begun in another era than this is refused from then on.
  void Load(const std::string& directory, uint64_t era = 0);
  void SetReady() { is_ready_.store(true); }
  bool is_ready() const { return is_ready_.load(); }
  bool is_primary() const { return is_primary_.load(); }
  bool is_stop_asked() const { return is_stop_asked_.load(); }
  // The standby was given up, and pushes are held until the coordinator, who decides on takeovers, knows.
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
  // Throws a Refusal unless pulls and pushes are taken here and now.
  void RequireServing() const;
  // Throws a Refusal if a later coordinator has spoken; remembers the latest.
  void CheckIncarnation(uint64_t incarnation);
  // What an order does. Blocks: for the orders' thread. Returns JSON.
  std::string Obey(std::string_view order);
  // Orders of a standby's life. Throw FailedPrecondition. One that serves nothing yet may be told to follow.
  void Follow(const std::string& primary);
  void Promote();
  // A standby that begins, on the orders' thread: says what to copy; and a piece of it.
  std::string BeginTransfer(std::atomic<uint64_t>* session);
  std::string ReadTransfer(uint64_t session, uint32_t file, uint64_t offset) const;

  std::unique_ptr<net::Session> Open(net::Protocol protocol, net::ConnectionId id, int fd) override;
  void OnWake(size_t) override {}
  void OnAnswered(size_t, uint64_t) override {}
  uint32_t silent_limit_s() const override { return secret_.is_set() ? 60 : 0; }

 private:
  struct Transfer {
    uint64_t session = 0;
    std::vector<File> files;  // unlinked: gone with the last who has them open
  };
  std::string scratch() const;
  // The directory an order names, links followed. Throws FailedPrecondition where that is outside of `files`.
  std::string Confine(const std::string& directory) const;
  void AppendStandbyStats(std::string* out) const;

  const ServiceOptions options_;
  const Secret secret_;
  const std::shared_ptr<net::TlsClient> tls_;
  std::atomic<bool> is_ready_{false}, is_primary_, is_stop_asked_{false};
  std::atomic<uint64_t> incarnation_{0};
  std::unique_ptr<net::Server> server_;  // destroyed after the shard, whose last answers go to it
  std::unique_ptr<Replica> replica_;
  std::unique_ptr<Shard> shard_;
  mutable std::mutex standby_mutex_;  // of the two below
  std::shared_ptr<const Transfer> transfer_;
  std::unique_ptr<Follower> follower_;
  std::unique_ptr<Control> control_;
};

}  // namespace elasticctr::ps
