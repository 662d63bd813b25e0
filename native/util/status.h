// The error codes of the whole system. A native function that cannot do its work throws an Error with one of them;
// bindings/module.cc turns it into the Python class of the same name. A message says what happened, to which file, line
// or row, and what to do next.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace elasticctr {

// The numbers are also process exit statuses (errors.py). Never change one.
enum class Code : uint8_t {
  kConfig = 10,
  kData = 11,
  kNotFound = 12,
  kAlreadyExists = 13,
  kCorruption = 14,
  kFailedPrecondition = 15,
  kUnauthorized = 16,
  kUnavailable = 17,
  kDeadlineExceeded = 18,
  kInternal = 19,
};

class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Code code() const { return code_; }

 private:
  Code code_;
};

// kUnavailable with a known waiting time.
class RetryLater : public Error {
 public:
  RetryLater(const std::string& message, uint32_t after_ms) : Error(Code::kUnavailable, message), after_ms_(after_ms) {}
  uint32_t after_ms() const { return after_ms_; }

 private:
  uint32_t after_ms_;
};

}  // namespace elasticctr
