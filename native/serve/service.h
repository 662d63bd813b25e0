// The prediction server: sockets, the engine, and a queue for what only Python can answer. One object owns them and
// outlives every request.
//
// Threads: event loops take requests apart, the engine's workers answer predictions, Python's control threads take the
// rest from control(). All functions may be called from any thread; Start and Stop once each.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "net/server.h"
#include "serve/brpc_session.h"
#include "serve/control_queue.h"
#include "serve/engine.h"
#include "serve/http_session.h"
#include "util/secret.h"

namespace elasticctr::serve {

struct ServiceOptions {
  net::ServerOptions net;
  EngineOptions engine;
  ControlOptions control;
  std::string token;  // empty: anybody may ask
};

class Service : public net::Application {
 public:
  using Observer = std::function<void(const Finished&)>;

  // Binds. Throws ConfigError, Unavailable (an address is taken).
  explicit Service(const ServiceOptions& options);
  ~Service() override;

  // Called by workers after each request, in the order of adding. REQUIRES: before Start.
  void AddObserver(Observer observer);
  void Start();
  // Answers end their connections from now on; what arrived is answered within drain_s, then everything ends.
  void Stop(double drain_s);

  void SetModels(std::shared_ptr<const Models> models) { engine_.SetModels(std::move(models)); }
  std::shared_ptr<const Models> models() const { return engine_.models(); }
  // What GET /readyz says; not ready at first.
  void SetReady(bool is_ready, std::string why);

  // A request that came by another way than our sockets: the answer's bytes, as the codec made them. Blocks until it
  // is answered, at most a little beyond its deadline. `request` needs codec and body.
  std::string Call(std::unique_ptr<Request> request);

  bool Matches(std::string_view token) const { return secret_.Matches(token); }
  bool has_token() const { return secret_.is_set(); }
  std::string MetricsText() const;
  ControlQueue& control() { return control_; }
  const std::vector<uint16_t>& ports() const { return server_->ports(); }
  size_t queued() const { return engine_.queued(); }
  size_t connections() const { return server_->connections(); }

  std::unique_ptr<net::Session> Open(net::Protocol protocol, net::ConnectionId id, int fd) override;
  void OnWake(size_t) override {}
  void OnAnswered(size_t, uint64_t) override {}
  uint32_t silent_limit_s() const override { return 30; }

 private:
  std::string NotReady() const;

  const ServiceOptions options_;
  const Secret secret_;
  const uint64_t started_ns_;
  std::atomic<bool> is_draining_{false};
  std::vector<Observer> observers_;
  SessionStats session_stats_;
  HttpContext http_;
  BrpcContext brpc_;
  mutable std::mutex ready_mutex_;
  std::string not_ready_ = "no model has a version yet";
  // The server outlives control and engine, which answer through it; its loops end first (Stop).
  std::unique_ptr<net::Server> server_;
  Engine engine_;
  ControlQueue control_;
  std::atomic<bool> stopped_{false};
};

}  // namespace elasticctr::serve
