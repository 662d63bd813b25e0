#include "net/loop/sniff.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <string_view>

#include "net/wire.h"

namespace elasticctr::net {
namespace {

struct Opening {
  std::string_view bytes;
  Protocol protocol;
};

// "GET 12" is a Redis inline command, "GET /" is HTTP.
constexpr Opening kOpenings[] = {
    {"GET /", Protocol::kHttp},    {"POST /", Protocol::kHttp},   {"HEAD /", Protocol::kHttp},
    {"PUT /", Protocol::kHttp},    {"DELETE /", Protocol::kHttp}, {"PATCH /", Protocol::kHttp},
    {"OPTIONS ", Protocol::kHttp}, {"PRI * ", Protocol::kHttp},   {"PRPC", Protocol::kBrpc},
};
constexpr uint8_t kTlsHandshake = 0x16;

}  // namespace

Protocol Sniff(const uint8_t* data, size_t size) {
  if (size == 0) return Protocol::kUndecided;
  if (data[0] == wire::kMagic[0]) return Protocol::kWire;
  if (data[0] == '*' || data[0] == '\r' || data[0] == '\n') return Protocol::kResp;
  if (data[0] == kTlsHandshake) return Protocol::kTls;
  if (std::isalpha(data[0]) == 0) return Protocol::kUnknown;
  for (const Opening& opening : kOpenings) {
    size_t n = std::min(size, opening.bytes.size());
    if (std::memcmp(data, opening.bytes.data(), n) == 0) {
      return n == opening.bytes.size() ? opening.protocol : Protocol::kUndecided;
    }
  }
  return Protocol::kResp;
}

}  // namespace elasticctr::net
