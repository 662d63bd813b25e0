#include "net/loop/plain_refusal.h"

#include <string_view>

#include "net/frame.h"
#include "net/loop/sniff.h"
#include "net/wire.h"
#include "util/status.h"

namespace elasticctr::net {
namespace {

constexpr std::string_view kWhy = "this port speaks TLS: give the client the server's authority (--ca-file, tls ca)";

std::string RefuseWire(const uint8_t* data, size_t size) {
  wire::Header header;
  if (size >= wire::kHeaderBytes) {
    const wire::Header asked = wire::DecodeHeader(data);
    header.id = asked.id;
    header.table = asked.table;
    header.opcode = asked.opcode;
  }
  header.status = static_cast<uint8_t>(Code::kFailedPrecondition);
  return wire::MakeFrame(header, kWhy);
}

std::string RefuseHttp() {
  const std::string body =
      "{\"error\": {\"code\": \"FailedPrecondition\", \"message\": \"this port speaks TLS: use https://\"}}\n";
  return "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

}  // namespace

std::string PlainRefusal(const uint8_t* data, size_t size) {
  switch (Sniff(data, size)) {
    case Protocol::kWire: return RefuseWire(data, size);
    case Protocol::kHttp: return RefuseHttp();
    case Protocol::kResp: return "-ERR this port speaks TLS: connect with --tls\r\n";
    case Protocol::kUndecided:
    case Protocol::kBrpc:
    case Protocol::kTls:
    case Protocol::kUnknown: break;
  }
  return "";
}

}  // namespace elasticctr::net
