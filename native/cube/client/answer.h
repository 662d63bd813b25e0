// Parses one answer (docs/formats/wire.md) and checks every byte as it comes, because any server may have sent it.
// Independent of sockets: it says where the next bytes belong and learns how many arrived, so that rows are received in
// their final place without a copy.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "net/wire.h"

namespace elasticctr::cube {

class AnswerReader {
 public:
  struct Wanted {
    net::wire::Opcode opcode;
    uint64_t id;
    uint64_t table;
    uint64_t version;         // 0: the server's active one
    size_t keys = 0;          // of a lookup
    uint32_t row_bytes = 0;   // of a lookup
    uint8_t* rows = nullptr;  // keys * row_bytes for the rows; null: the reader keeps them
  };

  void Start(const Wanted& wanted);
  // Where the next bytes go: 1 or 2 buffers, in order, never past the known end of the answer.
  int Buffers(iovec buffers[2]);
  // `bytes` arrived in those buffers. True: the answer is complete. Throws Corruption for an answer that does not match
  // the request, FailedPrecondition if its rows have another width; the connection is unusable afterwards.
  bool Consume(size_t bytes);

  // The functions below REQUIRE: the answer is complete.
  const net::wire::Header& header() const { return header_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(text_.data()), text_.size()}; }
  // Of a lookup with status 0.
  uint64_t active() const { return DecodeFixed64(head_.data() + net::wire::kHeaderBytes + 8); }
  uint32_t tag() const { return header_.time_ms; }
  const uint8_t* found() const { return head_.data() + net::wire::kHeaderBytes + net::wire::kLookupHeadBytes; }
  const uint8_t* rows() const { return rows_; }

 private:
  enum class Part : uint8_t { kHead, kRows, kText };

  bool is_lookup() const { return wanted_.opcode == net::wire::Opcode::kLookup; }
  void CheckHeader();
  void CheckLookupHead();
  void TurnToText();

  Wanted wanted_;
  Part part_ = Part::kHead;
  bool header_checked_ = false;
  net::wire::Header header_;
  std::vector<uint8_t> head_;      // the header and, for a lookup, everything before the rows
  std::vector<uint8_t> own_rows_;  // if the caller gave no place for rows
  std::vector<uint8_t> text_;      // the body of any other answer
  uint8_t* rows_ = nullptr;
  size_t rows_bytes_ = 0;
  size_t received_ = 0;  // since the start of the answer; in kText: of the body
};

}  // namespace elasticctr::cube
