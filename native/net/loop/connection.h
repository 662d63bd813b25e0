// One connection of a loop, and the constants that both halves of the loop (loop.cc: threads and time, io.cc: bytes)
// use.
#pragma once

#include <memory>

#include "net/loop/loop.h"

namespace elasticctr::net {

inline constexpr size_t kScratchBytes = 256 * 1024;
inline constexpr size_t kCarriedBytes = 64 * 1024;  // leftovers up to this size are copied to the scratch buffer
inline constexpr uint64_t kSecondNs = 1'000'000'000;

struct Loop::Connection {
  Fd fd;
  ConnectionId id;
  Account account;
  std::unique_ptr<Session> session;
  std::shared_ptr<const TlsContext> tls_context;  // null: bytes are sent as they are
  std::unique_ptr<TlsStream> tls;                 // from the first byte on
  Buffer in;                                      // received and not consumed; with TLS: decrypted
  Buffer out;                                     // not yet accepted by the socket; with TLS: encrypted
  size_t need = 0;
  size_t charged = 0;  // bytes counted in the account
  uint64_t received_ns = 0;
  uint64_t sent_ns = 0;      // during a drain: when the socket last accepted part of an answer
  uint64_t stalled_ns = 0;   // since when half a request or an unread answer has waited; 0: none does
  uint64_t patience_ns = 0;  // how long it may wait
  uint32_t interest = EPOLLIN;
  bool is_waiting = false;
  bool is_in_line = false;  // among the loop's large_
  bool is_large = false;    // as reported by the session
  bool is_closing = false;
  bool is_lingering = false;  // our side is shut; further input is discarded so that the peer reads our last bytes

  // A large request is being read or waits in a buffer of its own.
  bool holds_much() const { return is_large || in.size() > kCarriedBytes || need > kScratchBytes; }
  bool is_shaking_hands() const { return tls != nullptr && !tls->is_open(); }
  // An answer is still to come.
  bool is_busy() const { return is_waiting || (session != nullptr && session->owed() != 0); }
};

}  // namespace elasticctr::net
