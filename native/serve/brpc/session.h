// bRPC's baidu_std on one connection. Requests are read without waiting for answers, which are sent as soon as they are
// made and carry the correlation id: connections may be single, pooled or short.
//
// Invalid messages close the connection, as in bRPC. If the server has a token, the first request's authentication_data
// must contain it; later requests of the connection are trusted.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "net/loop/session.h"
#include "serve/brpc/frame.h"
#include "serve/engine/engine.h"
#include "util/secret.h"

namespace elasticctr::serve {

// Shared by all sessions. Outlives them and every request they submitted.
struct BrpcContext {
  Engine* engine;
  const Secret* secret;
  // net::Server::Complete.
  std::function<void(net::ConnectionId id, std::string answer, bool close)> complete;
};

class BrpcSession : public net::Session {
 public:
  BrpcSession(const BrpcContext* context, net::ConnectionId id, std::string peer)
      : context_(context),
        id_(id),
        peer_(std::move(peer)),
        waiting_(std::make_shared<std::atomic<size_t>>(0)),
        is_trusted_(!context->secret->is_set()) {}

  net::Step Consume(const uint8_t* data, size_t size, uint64_t received_ns, net::Buffer* out) override;
  uint32_t idle_limit_s() const override { return is_trusted_ ? kIdleS : kUntrustedIdleS; }
  size_t owed() const override { return owed_; }
  void OnAnswer() override { --owed_; }

  static constexpr uint32_t kIdleS = 600;  // clients reconnect when needed
  static constexpr uint32_t kUntrustedIdleS = 60;
  static constexpr size_t kMaxOwed = 1024;               // requests of a connection that may wait for their answers
  static constexpr size_t kMaxWaitingBytes = 32u << 20;  // and their bytes, beyond one request

 private:
  // Submits a complete message. False: its meta cannot be parsed.
  bool Take(std::string_view body, size_t meta_bytes, uint64_t received_ns);
  // False: no token or a wrong one, which has been answered.
  bool Trust(std::string_view meta, net::Buffer* out);
  // Answers a message of which only the meta has arrived; the connection must be closed then.
  void Refuse(std::string_view meta, const Error& error, net::Buffer* out);

  const BrpcContext* const context_;
  const net::ConnectionId id_;
  const std::string peer_;
  std::shared_ptr<std::atomic<size_t>> waiting_;  // bytes of requests submitted and not answered
  size_t owed_ = 0;
  bool is_trusted_;
};

}  // namespace elasticctr::serve
