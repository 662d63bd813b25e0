// What an error is over HTTP, for every protocol that goes by HTTP: its status and the header lines that belong to it.
#pragma once

#include <string>

#include "util/status.h"

namespace elasticctr::serve {

// An error whose status says more than its code does.
class HttpError : public Error {
 public:
  HttpError(int status, Code code, const std::string& message) : Error(code, message), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

// A body, a number of samples or of values over its limit. DataError where there are no HTTP statuses.
class TooLarge : public HttpError {
 public:
  explicit TooLarge(const std::string& message) : HttpError(413, Code::kData, message) {}
};

inline int HttpStatusOf(Code code) {
  switch (code) {
    case Code::kConfig:
    case Code::kData: return 400;
    case Code::kUnauthorized: return 401;
    case Code::kNotFound: return 404;
    case Code::kAlreadyExists: return 409;
    case Code::kFailedPrecondition: return 412;
    case Code::kUnavailable: return 503;
    case Code::kDeadlineExceeded: return 504;
    case Code::kCorruption:
    case Code::kInternal: return 500;
  }
  return 500;
}

inline int HttpStatusOf(const Error& error) {
  if (const auto* own = dynamic_cast<const HttpError*>(&error)) return own->status();
  if (dynamic_cast<const RetryLater*>(&error) != nullptr) return 429;
  return HttpStatusOf(error.code());
}

// Header lines, each with its CRLF.
inline std::string HttpHeadersOf(const Error& error) {
  if (const auto* later = dynamic_cast<const RetryLater*>(&error)) {
    return "Retry-After: " + std::to_string((later->after_ms() + 999) / 1000) + "\r\n";
  }
  if (error.code() == Code::kUnavailable) return "Retry-After: 1\r\n";
  if (error.code() == Code::kUnauthorized) return "WWW-Authenticate: Bearer\r\n";
  return {};
}

}  // namespace elasticctr::serve
