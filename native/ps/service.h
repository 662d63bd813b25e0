// A pserver: a shard behind event loops that speak docs/formats/ps-wire.md, over TCP and a Unix socket.
//
// Pulls and pushes are done on the loops' threads; a push that waits for its group, or for the standby, is answered
// later without holding up other connections. Saving, loading and other orders run on a thread of their own.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "net/server.h"
#include "ps/control.h"
#include "ps/shard.h"
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
};

class Service : public net::Application {
 public:
  // Binds. Throws ConfigError, Unavailable (an address is taken).
  explicit Service(const ServiceOptions& options);
  ~Service() override;

  // Answers from now on; pulls and pushes once it is ready.
  void Start();
  void Stop(double drain_s);

  const std::vector<uint16_t>& ports() const { return server_->ports(); }
  void Load(const std::string& directory);
  void SetReady() { is_ready_.store(true); }
  bool is_ready() const { return is_ready_.load(); }
  bool is_primary() const { return is_primary_.load(); }
  bool is_stop_asked() const { return is_stop_asked_.load(); }
  std::string stats() const;  // JSON

  // For sessions and orders.
  const ServiceOptions& options() const { return options_; }
  const Secret& secret() const { return secret_; }
  Shard& shard() { return *shard_; }
  net::Server& server() { return *server_; }
  Control& control() { return *control_; }
  // Throws a Refusal unless pulls and pushes are taken here and now.
  void RequireServing() const;
  // Throws a Refusal if a later coordinator has spoken; remembers the latest.
  void CheckIncarnation(uint64_t incarnation);
  // What an order does. Blocks: for the orders' thread. Returns JSON.
  std::string Obey(std::string_view order);

  std::unique_ptr<net::Session> Open(net::Protocol protocol, net::ConnectionId id, int fd) override;
  void OnWake(size_t) override {}
  void OnAnswered(size_t, uint64_t) override {}
  uint32_t silent_limit_s() const override { return secret_.is_set() ? 60 : 0; }

 private:
  const ServiceOptions options_;
  const Secret secret_;
  std::atomic<bool> is_ready_{false}, is_primary_, is_stop_asked_{false};
  std::atomic<uint64_t> incarnation_{0};
  std::unique_ptr<net::Server> server_;  // destroyed after the shard, whose last answers go to it
  std::unique_ptr<Shard> shard_;
  std::unique_ptr<Control> control_;
};

}  // namespace elasticctr::ps
