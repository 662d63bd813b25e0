// HTTP/1.1 on one connection: reads requests, refuses by the head when possible, and passes predictions to the engine
// and the rest to Python, one after another. Does not parse bodies.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "net/http/http.h"
#include "net/loop/server.h"
#include "net/loop/session.h"
#include "serve/engine/engine.h"
#include "serve/http/control_queue.h"
#include "serve/http/routes.h"
#include "util/secret.h"

namespace elasticctr::serve {

// Counted by sessions.
struct SessionStats {
  std::atomic<uint64_t> unauthorized{0};
  std::atomic<uint64_t> malformed{0};     // invalid or over a limit; closed the connection
  std::atomic<uint64_t> overloaded{0};    // no memory for its body
  std::atomic<uint64_t> control_full{0};  // too many requests wait for Python
};

// Shared by all sessions. Everything outlives the net::Server.
struct HttpContext {
  Engine* engine = nullptr;
  net::Server* server = nullptr;
  ControlQueue* control = nullptr;
  const Secret* secret = nullptr;
  std::string host;  // the address it listens at
  SessionStats* stats = nullptr;
  const std::atomic<bool>* is_draining = nullptr;  // answers close their connections
  std::function<std::string()> not_ready;          // the reason; empty: ready
  std::function<std::string()> metrics;
  // For logs: called for a request that was answered without the engine.
  std::function<void(const std::string& peer, const std::string& method, const std::string& path, int status,
                     uint64_t received_ns)>
      on_answered;
};

class HttpSession : public net::Session {
 public:
  HttpSession(HttpContext* context, net::ConnectionId id, std::string peer);

  net::Step Consume(const uint8_t* data, size_t size, uint64_t received_ns, net::Buffer* out) override;
  uint32_t idle_limit_s() const override { return 75; }

 private:
  // Refuses by the head, before the body arrives; throws.
  void CheckHead(net::Buffer* out);
  void CheckAccess(const net::HttpRequest& request);
  bool IsReading(const net::HttpRequest& request) const;
  void CheckBody();
  // True: the answer comes later.
  bool Serve(net::Buffer* out);
  void Submit();
  bool AskPython(net::Buffer* out);
  void Answer(int status, std::string_view type, std::string_view body, net::Buffer* out);
  void Refuse(const Error& error, net::Buffer* out);
  void StartNext();

  HttpContext* const context_;
  const net::ConnectionId id_;
  const std::string peer_;
  net::HttpReader reader_;
  Route route_;
  uint64_t received_ns_ = 0;
  size_t body_limit_ = 0;
  net::Charge charge_;       // of the body
  bool is_checked_ = false;  // the head of the current request
  bool is_gzip_ = false;     // its body
  bool is_last_ = false;     // its answer closes the connection
};

// Generates an id for a request without one.
std::string MakeRequestId();

}  // namespace elasticctr::serve
