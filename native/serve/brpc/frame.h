// A message of bRPC's protocol baidu_std: 12 bytes (PRPC, body size, meta size, both big-endian), an RpcMeta message of
// meta size bytes, then the message itself and its attachment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "util/status.h"

namespace elasticctr::serve::brpc {

inline constexpr size_t kHeaderBytes = 12;
inline constexpr uint32_t kMaxMetaBytes = 64 * 1024;

// bRPC's error codes that a server may send.
enum class Errno : int32_t {
  kOk = 0,
  kNoService = 1001,
  kNoMethod = 1002,
  kBadRequest = 1003,
  kUnauthorized = 1004,
  kTimedOut = 1008,
  kInternal = 2001,
  kLogOff = 2003,  // not available here: clients ask another server
  kLimit = 2004,   // overloaded
};

// An error with a more specific bRPC code than its own.
class BrpcError : public Error {
 public:
  BrpcError(Errno number, Code code, const std::string& message) : Error(code, message), number_(number) {}
  Errno number() const { return number_; }

 private:
  Errno number_;
};

Errno ErrnoOf(const Error& error);

struct Header {
  uint32_t body_bytes;  // meta and everything after it
  uint32_t meta_bytes;
};

// REQUIRES: kHeaderBytes at `data`. False: not a header, or a contradictory one.
bool ReadHeader(const uint8_t* data, Header* header);

using UserFields = std::vector<std::pair<std::string_view, std::string_view>>;

// The meta of a request. Views point into the bytes read.
struct RequestMeta {
  bool is_request = false;
  std::string_view service, method, request_id;
  std::string_view authentication;
  uint64_t log_id = 0;
  uint64_t correlation_id = 0;
  int32_t timeout_ms = 0;
  int32_t compress_type = 0;
  int64_t attachment_bytes = 0;
  bool is_stream = false;  // wants a stream or comes in chunks; not supported
  UserFields user_fields;

  std::string_view user_field(std::string_view name) const;
};

// Throws DataError.
RequestMeta ReadRequestMeta(std::string_view meta);

// A complete answer. Without an error `message` is the response.
struct ResponseMeta {
  uint64_t correlation_id = 0;
  Errno error = Errno::kOk;
  std::string_view error_text;
  UserFields user_fields;
};
std::string FormatResponse(const ResponseMeta& meta, std::string_view message);
std::string FormatErrorResponse(uint64_t correlation_id, const Error& error);

}  // namespace elasticctr::serve::brpc
