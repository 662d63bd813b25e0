// A frame for a shard, and one attempt to have a replica answer it.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <string>

#include "cube/client/answer.h"
#include "cube/client/replica.h"
#include "net/connection.h"

namespace elasticctr::cube {

struct LegError {
  Code code = Code::kUnavailable;
  net::wire::Detail detail = net::wire::Detail::kNone;
  uint32_t retry_after_ms = 0;
  std::string message;  // names the shard and every replica tried
};

// One frame to one shard.
struct Leg {
  net::wire::Opcode opcode = net::wire::Opcode::kLookup;
  uint32_t shard = 0;
  int replica = -1;  // this one only, and only once; -1: chosen by the balance
  uint64_t table = 0;
  uint64_t version = 0;
  const uint64_t* keys = nullptr;  // must stay valid until Run returns
  size_t count = 0;
  uint32_t row_bytes = 0;
  uint8_t* rows = nullptr;  // where the rows should go; they may end elsewhere (answer->rows() says)

  // Set by Run: exactly one of `answer` and `error`. The answer lives as long as the Exchange or until its next Run.
  const AnswerReader* answer = nullptr;
  Replica* answered_by = nullptr;
  LegError error;
};

// A connection, the frame in flight on it and its answer. Used by one thread.
struct Attempt {
  enum class Phase : uint8_t { kClosed, kConnecting, kSending, kReceiving };

  bool is_open() const { return phase != Phase::kClosed; }
  // No request has been sent yet.
  bool is_opening() const { return phase == Phase::kConnecting || (is_open() && is_hello); }

  // The events to wait for on its socket. REQUIRES: is_open().
  short events() const;

  void PrepareHello(const std::string& token, uint64_t id);
  // Rows go to `target`; null: the reader keeps them.
  void PrepareRequest(const Leg& asked, uint64_t id, uint32_t time_ms, uint8_t* target);
  // Sends as much as the socket accepts. Throws Unavailable.
  void Transmit();
  // Reads what has arrived. True: the answer to the frame in flight is complete. Throws Unavailable, and as
  // AnswerReader.
  bool Receive();
  // Stores what a valid answer to hello says. Throws FailedPrecondition, Corruption.
  void TakeHello();

  Phase phase = Phase::kClosed;
  size_t leg = 0;
  int number = 0;  // of the replica in its set
  Replica* replica = nullptr;
  std::unique_ptr<net::Connection> connection;
  bool is_reused = false;  // the connection was idle: the server may have closed it since
  bool is_backup = false;
  bool is_hello = false;      // the frame in flight
  bool is_direct = false;     // rows go to their final place
  bool has_answered = false;  // at least one byte of the answer to the request arrived
  Clock::time_point started;
  uint8_t head[net::wire::kHeaderBytes];
  iovec out[2];
  size_t sent = 0, to_send = 0;
  AnswerReader reader;

 private:
  void Prepare(const net::wire::Header& header, const void* body);
};

}  // namespace elasticctr::cube
