// The HTTP form of an error, for every protocol on top of HTTP: its status and header lines.
#pragma once

#include <string>
#include <utility>

#include "util/status_table.h"

namespace elasticctr::serve {

// An error with a more specific status than its code.
class HttpError : public Error {
 public:
  // `headers` are header lines, each with its CRLF.
  HttpError(int status, Code code, const std::string& message, std::string headers = {})
      : Error(code, message), status_(status), headers_(std::move(headers)) {}
  int status() const { return status_; }
  const std::string& headers() const { return headers_; }

 private:
  int status_;
  std::string headers_;
};

// A body, a number of samples or a number of values over its limit. A DataError in protocols without HTTP statuses.
class TooLarge : public HttpError {
 public:
  explicit TooLarge(const std::string& message) : HttpError(413, Code::kData, message) {}
};

inline int HttpStatusOf(const Error& error) {
  if (const auto* own = dynamic_cast<const HttpError*>(&error)) return own->status();
  return StatusOf(error).http;
}

// Header lines, each with its CRLF.
inline std::string HttpHeadersOf(const Error& error) {
  if (const auto* own = dynamic_cast<const HttpError*>(&error)) return own->headers();
  if (const auto* later = dynamic_cast<const RetryLater*>(&error)) {
    return "Retry-After: " + std::to_string((later->after_ms() + 999) / 1000) + "\r\n";
  }
  if (error.code() == Code::kUnavailable) return "Retry-After: 1\r\n";
  if (error.code() == Code::kUnauthorized) return "WWW-Authenticate: Bearer\r\n";
  return {};
}

// A complete response with {"error": {"code": …, "message": …}}.
std::string HttpErrorAnswer(const Error& error, bool keep_alive, bool head_only = false);

}  // namespace elasticctr::serve
