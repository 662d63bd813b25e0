// The prediction server: sockets, the engine, and a queue for requests that only Python can answer. Owns all of them
// and outlives every request.
//
// Threads: event loops read requests, the engine's workers answer predictions, Python's control threads take the rest
// from control(). All functions may be called from any thread; Start and Stop once each.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "net/loop/server.h"
#include "serve/brpc/session.h"
#include "serve/engine/engine.h"
#include "serve/engine/protocol_stats.h"
#include "serve/http/access_log.h"
#include "serve/http/control_queue.h"
#include "serve/http/session.h"
#include "serve/request_log/request_log.h"
#include "util/secret.h"

namespace elasticctr::serve {

struct ServiceOptions {
  net::ServerOptions net;
  EngineOptions engine;
  ControlOptions control;
  std::string token;              // empty: no authentication
  std::string read_token;         // permits predictions and status, not commands; empty: there is none
  AccessLogOptions access_log;    // no path: none
  RequestLogOptions request_log;  // no directory: none
};

class Service : public net::Application {
 public:
  // Binds. Throws ConfigError, Unavailable (an address is taken).
  explicit Service(const ServiceOptions& options);
  ~Service() override;

  void Start();
  // Answers close their connections from now on; requests that arrived are answered within drain_s, then the server
  // stops.
  void Stop(double drain_s);

  // Replaces the served models. A variant without stats keeps its previous ones if its model, name and version are the
  // same.
  void SetModels(std::vector<Model> models);
  std::shared_ptr<const Models> models() const { return engine_.models(); }
  // Sets the answer of GET /readyz; not ready at first.
  void SetReady(bool is_ready, std::string why);

  // Answers a request that did not come over our sockets, with the codec's bytes. Blocks until it is answered, at most
  // a little beyond its deadline (timeout_ms; 0: the engine's). `request` needs codec and body.
  std::string Call(std::unique_ptr<Request> request, uint32_t timeout_ms);

  // Certificate and key for new connections. Throws FailedPrecondition if the server does not use TLS.
  void SetTls(const net::TlsOptions& tls) { server_->SetTls(tls); }

  bool Matches(std::string_view token) const { return secret_.Matches(token); }
  bool has_token() const { return secret_.is_set(); }
  std::string MetricsText() const;
  // Additional lines for GET /metrics, for what only Python knows.
  void SetExtraMetrics(std::string text);
  ControlQueue& control() { return control_; }
  const std::vector<uint16_t>& ports() const { return server_->ports(); }
  size_t queued() const { return engine_.queued(); }
  size_t connections() const { return server_->connections(); }

  std::unique_ptr<net::Session> Open(net::Protocol protocol, net::ConnectionId id, int fd) override;
  void OnWake(size_t) override {}
  void OnAnswered(size_t, uint64_t) override {}
  uint32_t pause_us(size_t loop) override;
  uint32_t silent_limit_s() const override { return 30; }

 private:
  std::string NotReady() const;

  const ServiceOptions options_;
  const Secret secret_;
  const uint64_t started_ns_;
  std::atomic<bool> is_draining_{false};
  std::vector<uint64_t> refusals_seen_;  // by loop; used only by its thread
  SessionStats session_stats_;
  ProtocolStats protocol_stats_;
  HttpContext http_;
  BrpcContext brpc_;
  std::mutex models_mutex_;   // one change at a time
  mutable std::mutex mutex_;  // guards the state set by Python
  std::string not_ready_ = "no model has a version yet";
  std::string extra_metrics_;
  std::unique_ptr<AccessLog> access_log_;
  std::unique_ptr<RequestLog> request_log_;
  // The server outlives control and engine, which answer through it; its loops end first (Stop).
  std::unique_ptr<net::Server> server_;
  Engine engine_;
  ControlQueue control_;
  std::atomic<bool> stopped_{false};
};

}  // namespace elasticctr::serve
