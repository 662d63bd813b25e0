// One connection to a pserver: frames in, answers out in the same order.
#pragma once

#include <memory>
#include <string>

#include "net/loop/session.h"
#include "net/wire.h"
#include "ps/server/answers.h"
#include "ps/server/service.h"

namespace elasticctr::ps {

class Session : public net::Session {
 public:
  Session(Service* service, net::ConnectionId id);
  ~Session() override;

  net::Step Consume(const uint8_t* data, size_t size, uint64_t received_ns, net::Buffer* out) override;
  uint32_t idle_limit_s() const override { return is_trusted_ ? 0 : kUntrustedIdleS; }
  size_t owed() const override { return owed_; }
  void OnAnswer() override { --owed_; }

 private:
  using Header = net::wire::Header;
  using Body = std::span<const uint8_t>;

  static constexpr uint32_t kUntrustedIdleS = 60;
  static constexpr uint32_t kUntrustedBytes = 4096;
  static constexpr size_t kMaxOwed = 256;  // answers pending; beyond that no more frames are taken

  // False: close the connection after the answers so far.
  bool Handle(const Header& request, Body body, net::Buffer* out);
  void Dispatch(const Header& request, Body body, net::Buffer* out);
  void Hello(const Header& request, Body body, net::Buffer* out);
  void Attach(const Header& request, Body body, net::Buffer* out);
  void Pull(const Header& request, Body body, net::Buffer* out);
  void Push(const Header& request, Body body, net::Buffer* out);
  void Cursors(const Header& request, Body body, net::Buffer* out);
  void SetGroup(const Header& request, Body body, net::Buffer* out);
  void SetDense(const Header& request, Body body, net::Buffer* out);
  void Order(const Header& request, Body body);
  void Replicate(const Header& request, Body body);
  // Answers with the result of `make`, run on the orders' thread; later frames of this connection wait for it.
  void SendLater(const Header& request, std::function<std::string()> make);

  // Sends a whole answer at once, or queues it behind pending ones.
  void Send(std::string answer, net::Buffer* out);
  // Sends an answer once the standby has the change at `place`.
  void SendHeld(uint64_t place, std::string answer, net::Buffer* out);
  void SendText(const Header& request, std::string_view text, net::Buffer* out);
  void Fail(const Header& request, const std::exception& error, net::Buffer* out);

  Service* const service_;
  const std::shared_ptr<Answers> answers_;
  FoundRows found_;
  size_t owed_ = 0;
  uint32_t skip_ = 0;  // bytes of a refused body still to be received
  bool is_trusted_;
  bool is_standby_ = false;
  // The session of the standby at the other end; 0: none. Shared with the thread that starts a copy for it.
  const std::shared_ptr<std::atomic<uint64_t>> replica_session_ = std::make_shared<std::atomic<uint64_t>>(0);
};

}  // namespace elasticctr::ps
