// The HTTP API of the server (docs/how-to/cube-server.md) on one connection: health, status, metrics, the control of
// versions, and the two HTTP services of Paddle's Cube.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>

#include "cube/server/control.h"
#include "cube/server/status.h"
#include "cube/server/worker.h"
#include "net/http/http.h"
#include "net/loop/session.h"
#include "util/secret.h"

namespace elasticctr::cube {

struct HttpContext {
  const Secret* secret;
  std::string host;  // the address it listens at
  Control* control;
  ServiceFacts facts;
  std::atomic<bool> is_commanded{false};  // a command of ControlService is running
};

struct HttpReply {
  int status = 200;
  std::string body;
  std::string type = "application/json";
};

class HttpSession : public net::Session {
 public:
  HttpSession(Worker* worker, HttpContext* context, net::ConnectionId id, const net::HttpLimits& limits)
      : worker_(worker), context_(context), id_(id), reader_(limits) {}

  net::Step Consume(const uint8_t* data, size_t size, uint64_t received_ns, net::Buffer* out) override;
  uint32_t idle_limit_s() const override { return 75; }

 private:
  // CheckHead and CheckBody return false if the connection must close after the answer.
  bool CheckHead(net::Buffer* out);
  bool CheckBody(net::Buffer* out);
  // Why the client is refused; nullopt: it is not.
  std::optional<HttpReply> CheckAccess(const net::HttpRequest& request) const;
  // True: the answer comes later.
  bool Serve(net::Buffer* out);
  bool ServeLater(std::function<HttpReply()> work, bool is_load, net::Buffer* out);
  void Send(const HttpReply& reply, net::Buffer* out);

  Worker* const worker_;
  HttpContext* const context_;
  const net::ConnectionId id_;
  net::HttpReader reader_;
  size_t body_limit_ = 0;
  net::Charge charge_;                // of the body
  bool is_checked_ = false;           // the head of the current request
  bool is_waiting_its_turn_ = false;  // a large request that is complete
};

// Serves the requests that change which versions are served. Blocks.
HttpReply ServeControl(Control* control, const std::string& path, const std::string& body);
// Paddle Cube's ControlService/cmd. `is_commanded` is set by the caller and cleared here.
HttpReply ServeCommand(HttpContext* context, const std::string& body);
// Paddle Cube's DictService/seek. Its answer must fit into `account`.
HttpReply ServeSeek(Worker* worker, const net::Account& account, const std::string& query, const std::string& body);
HttpReply ErrorReply(Code code, std::string_view message);

}  // namespace elasticctr::cube
