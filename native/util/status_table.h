// The name of each error code, and its number in every protocol that has its own. The framed
// protocols of the Cube and of pservers send the code itself (docs/formats).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "util/status.h"

namespace elasticctr {

struct StatusRow {
  Code code;
  const char* name;  // the class in errors.py, and "code" in every JSON error
  int http;
  int grpc;
  int brpc;  // serve::brpc::Errno
};

inline constexpr std::array<StatusRow, 10> kStatusTable = {{
    {Code::kConfig, "ConfigError", 400, 3, 1003},                     // gRPC INVALID_ARGUMENT, bRPC EREQUEST
    {Code::kData, "DataError", 400, 3, 1003},                         // INVALID_ARGUMENT, EREQUEST
    {Code::kNotFound, "NotFound", 404, 5, 1001},                      // NOT_FOUND, ENOSERVICE
    {Code::kAlreadyExists, "AlreadyExists", 409, 6, 1003},            // ALREADY_EXISTS, EREQUEST
    {Code::kCorruption, "Corruption", 500, 15, 2001},                 // DATA_LOSS, EINTERNAL
    {Code::kFailedPrecondition, "FailedPrecondition", 412, 9, 1003},  // FAILED_PRECONDITION, EREQUEST
    {Code::kUnauthorized, "Unauthorized", 401, 16, 1004},             // UNAUTHENTICATED, ERPCAUTH
    {Code::kUnavailable, "Unavailable", 503, 14, 2003},               // UNAVAILABLE, ELOGOFF
    {Code::kDeadlineExceeded, "DeadlineExceeded", 504, 4, 1008},      // DEADLINE_EXCEEDED, ERPCTIMEDOUT
    {Code::kInternal, "InternalError", 500, 13, 2001},                // INTERNAL, EINTERNAL
}};

// Too much at once, and a known time after which to try again (RetryLater).
inline constexpr StatusRow kRetryLaterStatus = {Code::kUnavailable, "Unavailable", 429, 8, 2004};  // RESOURCE_EXHAUSTED

// Whether a number from a wire is an error's code.
inline constexpr bool IsCode(uint8_t number) {
  return number >= static_cast<uint8_t>(Code::kConfig) && number <= static_cast<uint8_t>(Code::kInternal);
}

inline constexpr size_t kCodes = kStatusTable.size();

// The place of a code in the table; of an unknown one, that of kInternal.
inline constexpr size_t PlaceOf(Code code) {
  const auto number = static_cast<uint8_t>(code);
  return IsCode(number) ? size_t{number} - static_cast<uint8_t>(Code::kConfig) : kCodes - 1;
}

inline constexpr const StatusRow& StatusOf(Code code) { return kStatusTable[PlaceOf(code)]; }
inline const StatusRow& StatusOf(const Error& error) {
  return dynamic_cast<const RetryLater*>(&error) != nullptr ? kRetryLaterStatus : StatusOf(error.code());
}
inline constexpr const char* NameOf(Code code) { return StatusOf(code).name; }

static_assert([] {
  for (size_t i = 0; i < kCodes; ++i) {
    if (PlaceOf(kStatusTable[i].code) != i) return false;
  }
  return true;
}());

}  // namespace elasticctr
