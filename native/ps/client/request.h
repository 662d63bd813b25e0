// A frame for one pserver, and the handling of its answer. Created by any thread; once submitted, used only by the
// client's IO thread.
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

// How a request failed; every thread that waits for it throws this.
struct Failure {
  Code code;
  std::string message;            // names the pserver
  std::optional<uint64_t> chunk;  // of a push refused because of its cursor
  uint32_t shard = 0, cursor = 0;
  std::optional<uint64_t> era{};  // the pserver's era, if the request was of an earlier one

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
  bool is_abandoned = false;  // its end was reported already; an answer is read and ignored

  // Chooses where the body of an answer with status 0 goes. Throws Corruption for an invalid length.
  virtual void Place(const net::wire::Header& header, std::vector<iovec>* places) = 0;
  // The body is complete in the places that Place chose. Throws Corruption.
  virtual void OnAnswer(const net::wire::Header& header) = 0;
  // Called once, unless OnAnswer was: the pserver refused the request or could not be reached.
  virtual void OnError(Failure failure) = 0;
  // Converts a refusal of this request to a failure. `message` names the pserver.
  virtual Failure ToFailure(const net::wire::Header& header, std::string message) const;
  // Called before the request is sent over a new connection.
  virtual void OnResend() {}
  // For a push: it is dropped together with pushes of its generation and earlier.
  virtual uint64_t generation() const { return ~uint64_t{0}; }
  // Extra time without an answer: a push may wait for other trainers.
  virtual uint32_t patience_ms() const { return 0; }

 private:
  const Opcode opcode_;
  const size_t body_bytes_;
  uint64_t id_ = 0;
  Buffer<uint8_t> frame_;
};

// Counts down the answers of one call.
class Gate {
 public:
  explicit Gate(size_t parts) : left_(parts) {}
  void Arrive();
  void Fail(Failure failure);
  // Throws the first failure once all parts have ended. False: the timeout passed first.
  bool Wait(uint32_t timeout_ms);
  // As Wait, without a timeout. REQUIRES: every part has a deadline.
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
