// HTTP/1.1 requests, parsed incrementally: head, then a body of known length or in chunks. Refuses ambiguous requests
// (two lengths, a length and chunks, folded headers) instead of guessing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace elasticctr::net {

inline constexpr uint32_t kMaxTimeoutMs = 3'600'000;  // that a client may ask for

struct HttpRequest {
  std::string method;
  std::string path;   // without the query, not decoded
  std::string query;  // after '?'
  std::string authorization;
  std::string host;
  std::string origin;
  std::string content_type;
  std::string content_encoding;
  std::string request_id;                // X-Request-Id
  uint64_t inference_header_length = 0;  // Inference-Header-Content-Length; 0: none
  uint32_t timeout_ms = 0;               // X-Timeout-Ms; 0: none
  std::string body;
  bool keep_alive = true;
  bool wants_continue = false;  // the client waits for "100 Continue" before it sends the body
};

// Limits of one request.
struct HttpLimits {
  size_t head_bytes = 16 * 1024;
  size_t body_bytes = 16u << 20;
};

class HttpReader {
 public:
  enum class State : uint8_t { kHead, kBody, kChunkSize, kChunk, kChunkEnd, kTrailer, kDone, kBad };

  explicit HttpReader(const HttpLimits& limits) : limits_(limits) {}

  // Consumes as many of these bytes as it can and returns their number. Stops after the head (so that a request can be
  // refused before its body comes), when the request is complete (kDone) and when it is invalid (kBad: see bad_status).
  size_t Feed(const char* data, size_t size);

  State state() const { return state_; }
  bool head_done() const { return state_ != State::kHead && state_ != State::kBad; }
  bool in_request() const { return state_ != State::kHead; }
  const HttpRequest& request() const { return request_; }
  // Moves the request out. REQUIRES: Reset before the next Feed.
  HttpRequest TakeRequest() { return std::move(request_); }
  // Bytes of the body received so far.
  size_t body_bytes() const { return request_.body.size(); }
  // Bytes of the body, or of the current chunk, that are announced but not received.
  uint64_t announced_bytes() const { return state_ == State::kBody || state_ == State::kChunk ? left_ : 0; }
  int bad_status() const { return bad_status_; }
  const std::string& bad_reason() const { return bad_reason_; }
  // Discards the request and prepares for the next.
  void Reset();

 private:
  size_t FeedHead(const char* data, size_t size);
  size_t FeedLine(const char* data, size_t size);
  bool ParseHead(std::string_view head);
  bool ParseRequestLine(std::string_view line);
  bool ParseHeader(std::string_view name, std::string_view value);
  void EndLine();
  bool Refuse(int status, std::string reason);

  const HttpLimits limits_;
  State state_ = State::kHead;
  HttpRequest request_;
  size_t scanned_ = 0;  // of the head, without an end found
  uint64_t left_ = 0;   // of the body or chunk
  bool has_length_ = false;
  bool is_chunked_ = false;
  std::string line_;  // a partial chunk size or trailer line
  size_t trailer_bytes_ = 0;
  int bad_status_ = 0;
  std::string bad_reason_;
};

// A complete response. `extra` are additional header lines, each with its CRLF.
std::string HttpAnswer(int status, std::string_view type, std::string_view body, bool keep_alive,
                       std::string_view extra = {}, bool head_only = false);

}  // namespace elasticctr::net
