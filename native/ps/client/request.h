// A frame for one pserver, and what is done with its answer. Made by any thread; once submitted, only the client's IO
// thread uses it.
#pragma once

#include <sys/uio.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "net/wire.h"
#include "ps/wire/frames.h"
#include "table/buffer.h"
#include "util/status.h"

namespace elasticctr::ps {

// How a request failed; thrown by every thread that waits for it.
struct Failure {
  Code code;
  std::string message;            // names the pserver
  std::optional<uint64_t> chunk;  // of a push refused for its cursor
  uint32_t shard = 0, cursor = 0;
  std::optional<uint64_t> era{};  // the pserver's, where the request was of an earlier one

  [[noreturn]] void Throw() const;
};

class Request {
 public:
  Request(Opcode opcode, size_t body_bytes);
  virtual ~Request() = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  Opcode opcode() const { return opcode_; }
  uint8_t* body() { return frame_.data() + net::wire::kHeaderBytes; }
  const uint8_t* frame() const { return frame_.data(); }
  size_t frame_bytes() const { return net::wire::kHeaderBytes + body_bytes_; }
  uint64_t id() const { return id_; }
  void SetHeader(uint64_t id, uint64_t incarnation, uint64_t job);

  uint64_t era = 0;           // of the work it is part of
  uint64_t deadline_ns = 0;   // 0: none, it is kept until it is answered
  bool is_abandoned = false;  // its end was told already; an answer is read and ignored

  // Where the body of an answer of status 0 goes. Throws Corruption for a length that cannot be.
  virtual void Place(const net::wire::Header& header, std::vector<iovec>* places) = 0;
  // The body is where Place said. Throws Corruption.
  virtual void OnAnswer(const net::wire::Header& header) = 0;
  // Called once, unless OnAnswer was: the pserver refused, or could not be reached.
  virtual void OnError(Failure failure) = 0;
  // A refusal of this request as a failure. `message` names the pserver.
  virtual Failure ToFailure(const net::wire::Header& header, std::string message) const;
  // About to be sent over a new connection.
  virtual void OnResend() {}
  // Of a push: dropped together with those of its generation and before.
  virtual uint64_t generation() const { return ~uint64_t{0}; }
  // How much longer than others it may stay without an answer: a push that waits for other trainers.
  virtual uint32_t patience_ms() const { return 0; }

 private:
  const Opcode opcode_;
  const size_t body_bytes_;
  uint64_t id_ = 0;
  Buffer<uint8_t> frame_;
};

// The answers of one call, counted down as they come.
class Gate {
 public:
  explicit Gate(size_t parts) : left_(parts) {}
  void Arrive();
  void Fail(Failure failure);
  // Throws the first failure once all parts ended. False: they did not within the time.
  bool Wait(uint32_t timeout_ms);
  // As Wait, for as long as it takes. REQUIRES: every part has a deadline.
  void WaitAll();

 private:
  void End(std::optional<Failure> failure);

  std::mutex mutex_;
  std::condition_variable done_;
  size_t left_;
  std::optional<Failure> failure_;
};

// A request whose answer is text or a few numbers.
class TextRequest : public Request {
 public:
  TextRequest(Opcode opcode, std::string_view body, std::shared_ptr<Gate> gate);
  const std::string& answer() const { return answer_; }

  void Place(const net::wire::Header& header, std::vector<iovec>* places) override;
  void OnAnswer(const net::wire::Header& header) override;
  void OnError(Failure failure) override;

 private:
  std::shared_ptr<Gate> gate_;
  std::string answer_;
};

}  // namespace elasticctr::ps
