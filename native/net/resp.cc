#include "net/resp.h"

#include <algorithm>

#include "util/coding.h"

namespace elasticctr::net {
namespace {

constexpr size_t kMaxLineBytes = 64 * 1024;  // of an inline command
constexpr size_t kMaxLengthBytes = 16;       // of "*1000001\r\n"

bool IsDigit(uint8_t c) { return c >= '0' && c <= '9'; }

// Converts eight ASCII digits to a number; false if one is not a digit.
bool EightDigits(const char* p, uint64_t* value) {
  uint64_t x = DecodeFixed64(p);
  constexpr uint64_t kZeros = 0x3030303030303030, kHigh = 0xF0F0F0F0F0F0F0F0, kSixes = 0x0606060606060606;
  if ((x & kHigh) != kZeros || ((x + kSixes) & kHigh) != kZeros) return false;
  x -= kZeros;
  x = (x * 10 + (x >> 8)) & 0x00FF00FF00FF00FF;
  x = (x * 100 + (x >> 16)) & 0x0000FFFF0000FFFF;
  *value = (x * 10000 + (x >> 32)) & 0xFFFFFFFF;
  return true;
}

}  // namespace

RespReader::Result RespReader::Read(const uint8_t* data, size_t size, const RespLimits& limits) {
  data_ = raw_ = data;
  size_ = size;
  if (size == 0) return Result::kMore;
  if (!is_array_) {
    if (data[0] != '*') return ReadInline(limits);
    size_t end = 0;
    int64_t count = 0;
    bad_reason_ = nullptr;
    if (!ReadLength(0, &end, &count)) return bad_reason_ != nullptr ? Result::kBad : Result::kMore;
    if (count > static_cast<int64_t>(limits.arguments)) return Bad("invalid multibulk length");
    at_ = end;
    if (count <= 0) return Result::kCommand;  // an empty command gets no answer
    is_array_ = true;
    left_ = static_cast<size_t>(count);
    spans_.reserve(std::min<size_t>(left_, 1024));
  }
  return ReadArguments(limits);
}

RespReader::Result RespReader::ReadArguments(const RespLimits& limits) {
  while (left_ != 0) {
    size_t at = at_, text = 0;
    if (at >= size_) return Result::kMore;
    if (data_[at] != '$') return Bad("expected '$'");
    uint32_t bytes;
    // Nearly all argument lengths have one or two digits.
    if (at + 4 < size_ && data_[at + 2] == '\r' && IsDigit(data_[at + 1])) {
      bytes = data_[at + 1] - uint32_t{'0'};
      text = at + 4;
      if (data_[at + 3] != '\n') return Bad("invalid bulk length");
    } else if (at + 5 < size_ && data_[at + 3] == '\r' && IsDigit(data_[at + 1]) && IsDigit(data_[at + 2])) {
      bytes = (data_[at + 1] - uint32_t{'0'}) * 10 + (data_[at + 2] - uint32_t{'0'});
      text = at + 5;
      if (data_[at + 4] != '\n') return Bad("invalid bulk length");
    } else {
      int64_t length = 0;
      bad_reason_ = nullptr;
      if (!ReadLength(at, &text, &length)) return bad_reason_ != nullptr ? Result::kBad : Result::kMore;
      if (length < 0 || length > static_cast<int64_t>(limits.argument_bytes)) return Bad("invalid bulk length");
      bytes = static_cast<uint32_t>(length);
    }
    if (text + bytes + 2 > limits.command_bytes) return Bad("the command is too long");
    if (text + bytes + 2 > size_) return Result::kMore;
    if (data_[text + bytes] != '\r' || data_[text + bytes + 1] != '\n')
      return Bad("a bulk string is longer than it says");
    spans_.push_back({static_cast<uint32_t>(text), bytes});
    at_ = text + bytes + 2;
    --left_;
  }
  return Result::kCommand;
}

bool RespReader::ReadLength(size_t at, size_t* end, int64_t* value) {
  size_t limit = std::min(size_, at + kMaxLengthBytes);
  for (size_t i = at + 1; i < limit; ++i) {
    if (data_[i] != '\r') continue;
    if (i + 1 == size_) return false;
    const auto* text = reinterpret_cast<const char*>(data_);
    auto [stop, error] = std::from_chars(text + at + 1, text + i, *value);
    if (data_[i + 1] != '\n' || error != std::errc() || stop != text + i) break;
    *end = i + 2;
    return true;
  }
  if (limit == at + kMaxLengthBytes || (limit != 0 && std::find(data_ + at, data_ + limit, '\r') != data_ + limit)) {
    bad_reason_ = "invalid length";
  }
  return false;
}

RespReader::Result RespReader::ReadInline(const RespLimits& limits) {
  // No line end was found before at_.
  const uint8_t* stop = std::find(data_ + at_, data_ + size_, '\n');
  auto line = static_cast<size_t>(stop - data_);
  if (line > std::min(kMaxLineBytes, limits.command_bytes)) return Bad("too big inline request");
  at_ = line;
  if (line == size_) return Result::kMore;
  at_ = line + 1;
  const std::string_view text(reinterpret_cast<const char*>(data_), line);
  if (text.find_first_of("\"'") != std::string_view::npos) return ReadQuoted(text, limits);
  size_t word = 0;
  for (size_t i = 0; i <= line; ++i) {
    bool is_end = i == line || data_[i] == ' ' || data_[i] == '\t' || data_[i] == '\r';
    if (!is_end) {
      if (data_[i] < ' ' || data_[i] >= 0x7F) return Bad("expected a command");
      continue;
    }
    if (i > word) spans_.push_back({static_cast<uint32_t>(word), static_cast<uint32_t>(i - word)});
    word = i + 1;
  }
  return spans_.size() > limits.arguments ? Bad("invalid multibulk length") : Result::kCommand;
}

// Splits a line as Redis does: "…" knows \n \r \t \b \a \" \\ and \xHH, '…' knows \', and a quote ends its word.
RespReader::Result RespReader::ReadQuoted(std::string_view line, const RespLimits& limits) {
  constexpr const char* kUnbalanced = "unbalanced quotes in request";
  const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  const auto hex = [](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    c = static_cast<char>(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  unquoted_.clear();
  for (size_t i = 0; i < line.size();) {
    if (is_blank(line[i])) {
      ++i;
      continue;
    }
    const size_t start = unquoted_.size();
    for (bool is_over = false; !is_over && i < line.size() && !is_blank(line[i]);) {
      const char quote = line[i];
      if (quote != '"' && quote != '\'') {
        if (line[i] < ' ' || line[i] >= 0x7F) return Bad("expected a command");
        unquoted_ += line[i++];
        continue;
      }
      for (++i;; ++i) {
        if (i == line.size()) return Bad(kUnbalanced);
        const char c = line[i], next = i + 1 < line.size() ? line[i + 1] : '\0';
        if (c == quote) break;
        if (c != '\\' || (quote == '\'' && next != '\'')) {
          unquoted_ += c;
        } else if (next == 'x' && i + 3 < line.size() && hex(line[i + 2]) >= 0 && hex(line[i + 3]) >= 0) {
          unquoted_ += static_cast<char>(hex(line[i + 2]) * 16 + hex(line[i + 3]));
          i += 3;
        } else {
          constexpr std::string_view kNames = "nrtba", kBytes = "\n\r\t\b\a";
          const size_t at = kNames.find(next);
          if (i + 1 == line.size()) return Bad(kUnbalanced);
          unquoted_ += quote == '"' && at != std::string_view::npos ? kBytes[at] : next;
          ++i;
        }
      }
      is_over = true;
      if (++i < line.size() && !is_blank(line[i])) return Bad(kUnbalanced);
    }
    spans_.push_back({static_cast<uint32_t>(start), static_cast<uint32_t>(unquoted_.size() - start)});
  }
  data_ = reinterpret_cast<const uint8_t*>(unquoted_.data());
  return spans_.size() > limits.arguments ? Bad("invalid multibulk length") : Result::kCommand;
}

void RespWriter::Line(char type, std::string_view text) {
  out_->Append(std::string_view(&type, 1));
  out_->Append(text);
  out_->Append("\r\n");
}

std::string Printable(std::string_view text) {
  std::string shown(text.substr(0, 80));
  std::replace_if(shown.begin(), shown.end(), [](unsigned char c) { return c < ' ' || c >= 0x7F; }, '?');
  return shown;
}

bool ParseFeasign(std::string_view text, uint64_t* feasign) {
  const char* p = text.data();
  size_t n = text.size();
  if (n == 0) return false;
  while (n > 20 && *p == '0') ++p, --n;
  if (n > 20) return false;
  // The first digits, then groups of eight: only the last eight of twenty digits can overflow.
  uint64_t value = 0;
  for (; n % 8 != 0; ++p, --n) {
    unsigned digit = static_cast<unsigned char>(*p) - '0';
    if (digit > 9) return false;
    value = value * 10 + digit;
  }
  for (; n != 0; p += 8, n -= 8) {
    uint64_t part;
    if (!EightDigits(p, &part)) return false;
    if (__builtin_mul_overflow(value, uint64_t{100'000'000}, &value) || __builtin_add_overflow(value, part, &value)) {
      return false;
    }
  }
  *feasign = value;
  return true;
}

}  // namespace elasticctr::net
