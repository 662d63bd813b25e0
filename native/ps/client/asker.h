// A synchronous connection to a pserver: sends a frame and waits for its answer, each with a timeout. Used by a standby
// and for its primary; trainers, which have many requests in flight, use Link.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "net/connection.h"
#include "net/tls.h"
#include "ps/client/incoming.h"
#include "ps/wire/frames.h"

namespace elasticctr::ps {

class Asker {
 public:
  // `who` begins every message. `tls` may be null. Throws ConfigError for an invalid address.
  Asker(std::string who, std::string address, uint64_t job, std::shared_ptr<net::TlsClient> tls);

  // Connects, replacing the previous connection. Throws Unavailable.
  void Connect(uint32_t timeout_ms);
  // Returns the answer's body. Throws the error that the pserver answered with, Unavailable if no answer comes in time,
  // and Corruption for an invalid one. REQUIRES: Connect, and again after a throw.
  std::string Ask(Opcode opcode, std::string_view body, uint32_t timeout_ms);
  // Ends a wait in progress with Unavailable. Any thread.
  void Interrupt();

 private:
  void Replace(std::unique_ptr<net::Connection> connection);
  void Send(std::string_view frame);
  std::string Receive();
  void Wait(short events);
  [[noreturn]] void Lost(const std::string& why) const;

  const std::string who_;
  const std::string address_;
  const uint64_t job_;
  const std::shared_ptr<net::TlsClient> tls_;
  std::mutex mutex_;  // guards the pointer: Interrupt must not hit another socket with the same number
  std::unique_ptr<net::Connection> connection_;
  Incoming answer_;
  uint64_t deadline_ns_ = 0;
  uint64_t id_ = 0;
};

}  // namespace elasticctr::ps
