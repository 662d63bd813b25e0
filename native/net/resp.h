// The Redis protocol: commands parsed incrementally, and replies in version 2 or 3.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "net/buffer.h"

namespace elasticctr::net {

struct RespLimits {
  size_t arguments;
  size_t argument_bytes;
  size_t command_bytes;
};

// Parses commands: arrays of bulk strings, or words on a line, which may be quoted as in Redis. Keeps its position, so
// that a command in a thousand pieces is parsed once.
class RespReader {
 public:
  enum class Result : uint8_t { kMore, kCommand, kBad };

  // `data` is where the unfinished command starts, the same position until kCommand. Then the command took
  // `command_bytes` of it, and argument(i) points into it. kBad: an invalid command, or over a limit; bad_reason says
  // which.
  Result Read(const uint8_t* data, size_t size, const RespLimits& limits);

  size_t count() const { return spans_.size(); }
  std::string_view argument(size_t i) const {
    return {reinterpret_cast<const char*>(data_) + spans_[i].at, spans_[i].bytes};
  }
  size_t command_bytes() const { return at_; }
  // The command as received.
  std::string_view raw() const { return {reinterpret_cast<const char*>(raw_), at_}; }
  const char* bad_reason() const { return bad_reason_; }
  // Discards the command; the next one starts after its bytes.
  void Reset() {
    spans_.clear();
    at_ = left_ = 0;
    is_array_ = false;
  }
  // Frees the memory that a large command took.
  void Shrink() {
    if (spans_.capacity() > 4096) std::vector<Span>().swap(spans_);
  }

 private:
  struct Span {
    uint32_t at, bytes;
  };

  Result ReadArguments(const RespLimits& limits);
  Result ReadInline(const RespLimits& limits);
  Result ReadQuoted(std::string_view line, const RespLimits& limits);
  // Reads the number after a type byte at `at`; false: its line is not complete yet. Errors are left in bad_reason_.
  bool ReadLength(size_t at, size_t* end, int64_t* value);
  Result Bad(const char* reason) {
    bad_reason_ = reason;
    return Result::kBad;
  }

  const uint8_t* data_ = nullptr;  // what spans point into
  const uint8_t* raw_ = nullptr;   // what Read was given
  size_t size_ = 0;
  size_t at_ = 0;    // read up to here
  size_t left_ = 0;  // arguments still to come
  bool is_array_ = false;
  std::vector<Span> spans_;
  std::string unquoted_;  // arguments of a line with quotes
  const char* bad_reason_ = nullptr;
};

// Appends replies. Maps and nulls are encoded differently in version 3.
class RespWriter {
 public:
  RespWriter(Buffer* out, int version) : out_(out), version_(version) {}

  Buffer* out() const { return out_; }
  void Simple(std::string_view text) { Line('+', text); }
  void Error(std::string_view text) { Line('-', text); }
  void Number(int64_t value) { Header(':', value); }
  void Bulk(std::string_view bytes) {
    Header('$', static_cast<int64_t>(bytes.size()));
    out_->Append(bytes);
    out_->Append("\r\n");
  }
  void Null() { out_->Append(version_ == 3 ? std::string_view("_\r\n") : std::string_view("$-1\r\n")); }
  void Array(size_t count) { Header('*', static_cast<int64_t>(count)); }
  void Map(size_t pairs) { Header(version_ == 3 ? '%' : '*', static_cast<int64_t>(version_ == 3 ? pairs : 2 * pairs)); }

 private:
  void Line(char type, std::string_view text);
  void Header(char type, int64_t value) {
    uint8_t* p = out_->Reserve(24);
    p[0] = static_cast<uint8_t>(type);
    auto* text = reinterpret_cast<char*>(p);
    char* end = std::to_chars(text + 1, text + 22, value).ptr;
    end[0] = '\r';
    end[1] = '\n';
    out_->Commit(static_cast<size_t>(end + 2 - text));
  }

  Buffer* out_;
  int version_;
};

// The part of a client's text that may be repeated on one line of an error.
std::string Printable(std::string_view text);

// A decimal feasign, leading zeros allowed. False: invalid, or over 64 bits.
bool ParseFeasign(std::string_view text, uint64_t* feasign);

}  // namespace elasticctr::net
