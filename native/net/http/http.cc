#include "net/http/http.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace elasticctr::net {
namespace {

constexpr size_t kMaxLineBytes = 256;              // of a chunk's size line or a trailer
constexpr size_t kReservedBodyBytes = 256 * 1024;  // allocated on the strength of the head alone

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) {
           return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
         });
}

bool ContainsToken(std::string_view list, std::string_view token) {
  while (!list.empty()) {
    size_t comma = std::min(list.find(','), list.size());
    std::string_view part = list.substr(0, comma);
    while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
    while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
    if (EqualsIgnoringCase(part, token)) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

bool IsToken(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

bool IsText(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) >= ' ' || c == '\t'; });
}

template <typename T>
bool ParseNumber(std::string_view text, int base, T* value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value, base);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

std::string_view ReasonOf(int status) {
  switch (status) {
    case 200: return "OK";
    case 202: return "Accepted";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 409: return "Conflict";
    case 412: return "Precondition Failed";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 422: return "Unprocessable Content";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    default: return status >= 500 ? "Internal Server Error" : "Error";
  }
}

}  // namespace

void HttpReader::Reset() {
  state_ = State::kHead;
  request_ = HttpRequest();
  scanned_ = left_ = trailer_bytes_ = 0;
  has_length_ = is_chunked_ = false;
  line_.clear();
}

bool HttpReader::Refuse(int status, std::string reason) {
  state_ = State::kBad;
  bad_status_ = status;
  bad_reason_ = std::move(reason);
  return false;
}

size_t HttpReader::Feed(const char* data, size_t size) {
  size_t at = 0;
  while (true) {
    switch (state_) {
      case State::kHead: return FeedHead(data, size);
      case State::kBody:
      case State::kChunk: {
        auto n = static_cast<size_t>(std::min<uint64_t>(left_, size - at));
        request_.body.append(data + at, n);
        at += n;
        left_ -= n;
        if (left_ != 0) return at;
        if (state_ == State::kBody) {
          state_ = State::kDone;
          return at;
        }
        state_ = State::kChunkEnd;
        break;
      }
      case State::kChunkSize:
      case State::kChunkEnd:
      case State::kTrailer:
        if (at == size) return at;
        at += FeedLine(data + at, size - at);
        break;
      case State::kDone:
      case State::kBad: return at;
    }
  }
}

size_t HttpReader::FeedHead(const char* data, size_t size) {
  std::string_view seen(data, size);
  // Empty lines before a request are allowed.
  size_t skip = std::min(seen.find_first_not_of("\r\n"), size);
  if (skip != 0) {
    scanned_ = 0;
    return skip;
  }
  size_t end = seen.find("\r\n\r\n", scanned_ < 3 ? 0 : scanned_ - 3);
  if (end == std::string_view::npos) {
    scanned_ = size;
    if (size > limits_.head_bytes)
      Refuse(431, "the request's head is over " + std::to_string(limits_.head_bytes) + " bytes");
    return 0;
  }
  if (end > limits_.head_bytes) {
    Refuse(431, "the request's head is over " + std::to_string(limits_.head_bytes) + " bytes");
    return 0;
  }
  if (!ParseHead(seen.substr(0, end))) return 0;
  state_ = is_chunked_ ? State::kChunkSize : left_ != 0 ? State::kBody : State::kDone;
  request_.body.reserve(static_cast<size_t>(std::min<uint64_t>(left_, kReservedBodyBytes)));
  return end + 4;
}

bool HttpReader::ParseHead(std::string_view head) {
  size_t end = std::min(head.find("\r\n"), head.size());
  if (!ParseRequestLine(head.substr(0, end))) return false;
  head.remove_prefix(std::min(end + 2, head.size()));
  while (!head.empty()) {
    end = std::min(head.find("\r\n"), head.size());
    std::string_view line = head.substr(0, end);
    head.remove_prefix(std::min(end + 2, head.size()));
    size_t colon = line.find(':');
    if (colon == std::string_view::npos || !IsToken(line.substr(0, colon)) || !IsText(line)) {
      return Refuse(400, "a header line is not 'name: value'");
    }
    std::string_view value = line.substr(colon + 1);
    while (!value.empty() && (value.front() == ' ' || value.front() == '\t')) value.remove_prefix(1);
    while (!value.empty() && (value.back() == ' ' || value.back() == '\t')) value.remove_suffix(1);
    if (!ParseHeader(line.substr(0, colon), value)) return false;
  }
  if (is_chunked_ && has_length_) return Refuse(400, "both Content-Length and Transfer-Encoding are given");
  return true;
}

bool HttpReader::ParseRequestLine(std::string_view line) {
  size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last || !IsToken(line.substr(0, first)) || !IsText(line)) {
    return Refuse(400, "the first line is not 'METHOD /path HTTP/1.1'");
  }
  std::string_view target = line.substr(first + 1, last - first - 1), version = line.substr(last + 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return Refuse(505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
  if (target.empty() || target.find(' ') != std::string_view::npos) return Refuse(400, "the path is not valid");
  size_t mark = std::min(target.find('?'), target.size());
  request_.method = line.substr(0, first);
  request_.path = target.substr(0, mark);
  request_.query = target.substr(std::min(mark + 1, target.size()));
  request_.keep_alive = version == "HTTP/1.1";
  return true;
}

bool HttpReader::ParseHeader(std::string_view name, std::string_view value) {
  if (EqualsIgnoringCase(name, "content-length")) {
    uint64_t length = 0;
    if (has_length_ || !ParseNumber(value, 10, &length)) return Refuse(400, "Content-Length is not one whole number");
    if (length > limits_.body_bytes) {
      return Refuse(413, "the body is over " + std::to_string(limits_.body_bytes) + " bytes");
    }
    has_length_ = true;
    left_ = length;
  } else if (EqualsIgnoringCase(name, "transfer-encoding")) {
    if (is_chunked_ || !EqualsIgnoringCase(value, "chunked"))
      return Refuse(501, "no Transfer-Encoding but chunked is known here");
    is_chunked_ = true;
  } else if (EqualsIgnoringCase(name, "connection")) {
    if (ContainsToken(value, "close")) request_.keep_alive = false;
    if (ContainsToken(value, "keep-alive")) request_.keep_alive = true;
  } else if (EqualsIgnoringCase(name, "authorization")) {
    request_.authorization = value;
  } else if (EqualsIgnoringCase(name, "host")) {
    if (!request_.host.empty()) return Refuse(400, "two Host headers");
    request_.host = value;
  } else if (EqualsIgnoringCase(name, "origin")) {
    request_.origin = value;
  } else if (EqualsIgnoringCase(name, "content-type")) {
    request_.content_type = value;
  } else if (EqualsIgnoringCase(name, "content-encoding")) {
    if (EqualsIgnoringCase(value, "identity")) return true;
    if (!request_.content_encoding.empty()) request_.content_encoding += ", ";
    request_.content_encoding += value;
  } else if (EqualsIgnoringCase(name, "x-request-id")) {
    request_.request_id = value;
  } else if (EqualsIgnoringCase(name, "inference-header-content-length")) {
    if (!ParseNumber(value, 10, &request_.inference_header_length))
      return Refuse(400, "Inference-Header-Content-Length is not a whole number");
  } else if (EqualsIgnoringCase(name, "x-timeout-ms")) {
    uint32_t& ms = request_.timeout_ms;
    if (!ParseNumber(value, 10, &ms) || ms == 0 || ms > kMaxTimeoutMs)
      return Refuse(400, "X-Timeout-Ms is not a whole number from 1 to " + std::to_string(kMaxTimeoutMs));
  } else if (EqualsIgnoringCase(name, "expect")) {
    request_.wants_continue = EqualsIgnoringCase(value, "100-continue");
  }
  return true;
}

// Collects a line between or after chunks, which may arrive in pieces.
size_t HttpReader::FeedLine(const char* data, size_t size) {
  std::string_view seen(data, size);
  size_t end = seen.find('\n');
  size_t n = end == std::string_view::npos ? size : end + 1;
  if (line_.size() + n > kMaxLineBytes) {
    Refuse(400, "a chunk's size line is too long");
    return 0;
  }
  line_.append(data, n);
  if (end == std::string_view::npos) return n;
  if (line_.size() < 2 || line_[line_.size() - 2] != '\r') {
    Refuse(400, "a line between chunks does not end in CRLF");
    return n;
  }
  line_.resize(line_.size() - 2);
  EndLine();
  line_.clear();
  return n;
}

void HttpReader::EndLine() {
  if (state_ == State::kChunkEnd) {
    if (!line_.empty())
      Refuse(400, "a chunk is longer than its size says");
    else
      state_ = State::kChunkSize;
  } else if (state_ == State::kTrailer) {
    trailer_bytes_ += line_.size();
    if (line_.empty())
      state_ = State::kDone;
    else if (trailer_bytes_ > limits_.head_bytes)
      Refuse(431, "the trailers are too long");
  } else {
    std::string_view digits = std::string_view(line_).substr(0, std::min(line_.find(';'), line_.size()));
    if (digits.size() > 8 || !ParseNumber(digits, 16, &left_))
      Refuse(400, "a chunk's size is not a hexadecimal number");
    else if (request_.body.size() + left_ > limits_.body_bytes)
      Refuse(413, "the body is over " + std::to_string(limits_.body_bytes) + " bytes");
    else
      state_ = left_ == 0 ? State::kTrailer : State::kChunk;
  }
}

std::string HttpAnswer(int status, std::string_view type, std::string_view body, bool keep_alive,
                       std::string_view extra, bool head_only) {
  std::string answer =
      "HTTP/1.1 " + std::to_string(status) + " " + std::string(ReasonOf(status)) + "\r\nContent-Type: ";
  answer.append(type).append("\r\nContent-Length: ").append(std::to_string(body.size())).append("\r\n");
  answer.append(extra);
  if (!keep_alive) answer.append("Connection: close\r\n");
  answer.append("\r\n");
  if (!head_only) answer.append(body);
  return answer;
}

}  // namespace elasticctr::net
