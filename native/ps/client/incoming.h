// One answer after another as its bytes come from a connection: a header, then its body into the places chosen for it.
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
  // Forgets what came; an answer begins.
  void Reset();
  // Reads once and returns how many bytes came; 0: none are there yet. `is_drained`: fewer than asked for, so more
  // would have to be waited for. Throws Corruption for a header that is none. Once is_undecided, call Begin or
  // BeginText first.
  size_t Receive(net::Connection* connection, bool* is_drained);
  // Where the body goes: `places` is cleared and filled by the caller, then Begin is called.
  std::vector<iovec>* places() { return &places_; }
  void Begin();
  // The body is kept here.
  void BeginText();

  // The header has come, and Begin or BeginText not been called.
  bool is_undecided() const { return received_ == net::wire::kHeaderBytes && !is_begun_; }
  bool is_whole() const { return is_begun_ && next_place_ == places_.size(); }
  // REQUIRES: the header has come.
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
  std::vector<iovec> places_;  // what is left of the body
  size_t next_place_ = 0;
};

}  // namespace elasticctr::ps
