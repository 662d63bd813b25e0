#include "net/sniff.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <string_view>

#include "net/wire.h"

namespace elasticctr::net {
namespace {

// "GET 12" is a Redis inline command, "GET /" is HTTP.
constexpr std::string_view kHttpOpenings[] = {"GET /",    "POST /",  "HEAD /",   "PUT /",
                                              "DELETE /", "PATCH /", "OPTIONS ", "PRI * "};
constexpr std::string_view kBrpcMagic = "PRPC";

}  // namespace

Protocol Sniff(const uint8_t* data, size_t size) {
  if (size == 0) return Protocol::kUndecided;
  if (data[0] == wire::kMagic[0]) return Protocol::kWire;
  if (data[0] == '*' || data[0] == '\r' || data[0] == '\n') return Protocol::kResp;
  if (std::isalpha(data[0]) == 0) return Protocol::kUnknown;
  if (size >= kBrpcMagic.size() && std::memcmp(data, kBrpcMagic.data(), kBrpcMagic.size()) == 0) return Protocol::kBrpc;
  for (std::string_view opening : kHttpOpenings) {
    size_t n = std::min(size, opening.size());
    if (std::memcmp(data, opening.data(), n) == 0) {
      return n == opening.size() ? Protocol::kHttp : Protocol::kUndecided;
    }
  }
  if (size < kBrpcMagic.size() && std::memcmp(data, kBrpcMagic.data(), size) == 0) return Protocol::kUndecided;
  return Protocol::kResp;
}

}  // namespace elasticctr::net
