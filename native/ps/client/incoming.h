// Receives one answer after another from a connection: a header, then its body into the places chosen for it.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "net/connection.h"
#include "net/wire.h"

namespace elasticctr::ps {

class Incoming {
 public:
  // Discards the current answer and starts the next.
  void Reset();
  // Reads once and returns the number of bytes received; 0: none available. `is_drained`: fewer than requested, so the
  // caller has to wait for more. Throws Corruption for an invalid header. Once is_undecided, call Begin or BeginText
  // first.
  size_t Receive(net::Connection* connection, bool* is_drained);
  // The destination of the body: `places` is cleared and filled by the caller, who then calls Begin.
  std::vector<iovec>* places() { return &places_; }
  void Begin();
  // Keeps the body here.
  void BeginText();

  // The header is complete, and neither Begin nor BeginText was called.
  bool is_undecided() const { return received_ == net::wire::kHeaderBytes && !is_begun_; }
  bool is_whole() const { return is_begun_ && next_place_ == places_.size(); }
  // REQUIRES: the header is complete.
  const net::wire::Header& header() const { return header_; }
  const std::string& text() const { return text_; }
  std::string TakeText() { return std::move(text_); }

 private:
  void Advance(size_t bytes);

  uint8_t head_[net::wire::kHeaderBytes];
  size_t received_ = 0;  // of the header
  net::wire::Header header_;
  bool is_begun_ = false;
  std::string text_;
  std::vector<iovec> places_;  // the rest of the body
  size_t next_place_ = 0;
};

}  // namespace elasticctr::ps
