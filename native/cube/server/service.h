// The cube server: a store of versions behind event loops that speak the wire protocol, Redis' and HTTP on every port.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "cube/server/control.h"
#include "cube/server/http.h"
#include "cube/server/metrics.h"
#include "cube/server/resp.h"
#include "cube/server/store.h"
#include "cube/server/wire.h"
#include "cube/server/worker.h"
#include "net/loop/server.h"

namespace elasticctr::cube {

struct ServiceOptions {
  net::ServerOptions net;
  std::string data;
  Residence residence = Residence::kMemory;
  Check check = Check::kAll;
  std::string token;       // empty: no authentication
  std::string read_token;  // permits lookups and status, not commands; empty: there is none
  uint32_t shard = 0;
  uint32_t shards = 0;  // 0: the paths do not name the shard
  bool activates_newest = false;
  ServiceLimits limits;
};

class Service : public net::Application {
 public:
  // Binds. Throws NotFound (no data directory), ConfigError, Unavailable (an address is taken).
  explicit Service(const ServiceOptions& options);
  ~Service() override;

  // Starts answering; versions named by LIVE files are loaded in the background.
  void Start();
  // True once every version named by LIVE was loaded or found to be unloadable.
  bool WaitStarted(double timeout_s) { return control_.WaitStarted(timeout_s); }
  // Finishes requests that arrived, within drain_s, and closes every connection.
  void Stop(double drain_s) { server_->Stop(drain_s); }
  // Certificate and key for new connections. Throws FailedPrecondition if the server does not use TLS.
  void SetTls(const net::TlsOptions& tls) { server_->SetTls(tls); }

  const std::vector<uint16_t>& ports() const { return server_->ports(); }
  bool is_ready() const { return control_.is_ready(); }
  std::string status() const { return StatusJson(facts_); }

  std::unique_ptr<net::Session> Open(net::Protocol protocol, net::ConnectionId id, int fd) override;
  void OnWake(size_t loop) override { workers_[loop]->Refresh(); }
  void OnAnswered(size_t loop, uint64_t received_ns) override { workers_[loop]->OnAnswered(received_ns); }
  uint32_t silent_limit_s() const override { return WireSession::kUntrustedIdleS; }

 private:
  const ServiceOptions options_;
  const Secret secret_;
  std::atomic<bool> is_serving_{false};  // LIVE files were read; before that, loops serve nothing
  std::unique_ptr<Store> store_;
  Metrics metrics_;
  std::unique_ptr<net::Server> server_;
  Control control_;
  ServiceFacts facts_;
  WireContext wire_;
  RespContext resp_;
  HttpContext http_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace elasticctr::cube
