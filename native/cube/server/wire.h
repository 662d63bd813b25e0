// The wire protocol (docs/formats/wire.md) on one connection.
#pragma once

#include <functional>
#include <string>

#include "cube/server/worker.h"
#include "net/loop/session.h"
#include "net/wire.h"
#include "util/secret.h"

namespace elasticctr::cube {

using Frame = net::wire::Header;

// What a session needs to know beyond its worker.
struct WireContext {
  const Secret* secret;
  std::function<std::string()> describe;  // the server's status as JSON
};

class WireSession : public net::Session {
 public:
  WireSession(Worker* worker, const WireContext* context)
      : worker_(worker), context_(context), is_trusted_(!context->secret->is_set()) {}

  net::Step Consume(const uint8_t* data, size_t size, uint64_t received_ns, net::Buffer* out) override;
  uint32_t idle_limit_s() const override { return is_trusted_ ? 0 : kUntrustedIdleS; }

  static constexpr uint32_t kUntrustedIdleS = 60;

 private:
  // Skip and Answer return false if the connection must be closed after the answers so far.
  bool Skip(size_t size, net::Step* step);
  bool Answer(const Frame& request, const uint8_t* body, uint64_t received_ns, net::Buffer* out);
  bool Lookup(const Frame& request, const uint8_t* body, uint64_t received_ns, net::Buffer* out);
  // Answers the queued small lookups.
  void FlushSmall(uint64_t received_ns, net::Buffer* out);
  // False: they have to be answered one by one.
  bool AnswerTogether(uint64_t received_ns, net::Buffer* out);
  void AnswerText(const Frame& request, std::string_view text, net::Buffer* out);
  void Fail(const Frame& request, Code code, net::wire::Detail detail, std::string_view message, net::Buffer* out,
            uint64_t version = 0);
  bool Refuse(const Frame& request, Code code, net::wire::Detail detail, std::string_view message, net::Buffer* out);
  void FailMiss(const Frame& request, TableCells* cells, size_t keys, Miss miss, net::Buffer* out);

  Worker* const worker_;
  const WireContext* const context_;
  uint32_t skip_ = 0;  // bytes of a refused body still to be received
  bool is_trusted_;
};

}  // namespace elasticctr::cube
