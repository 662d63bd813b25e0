#include "net/address.h"

#include <netdb.h>
#include <sys/un.h>

#include <cstring>

#include "util/status.h"

namespace elasticctr::net {
namespace {

constexpr char kUnix[] = "unix:";
constexpr size_t kUnixLength = sizeof kUnix - 1;

bool IsUnix(const std::string& text) { return text.compare(0, kUnixLength, kUnix) == 0; }

struct HostPort {
  std::string host, port;
};

HostPort Split(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return {};
  HostPort parts{text.substr(0, colon), text.substr(colon + 1)};
  if (parts.host.size() > 2 && parts.host.front() == '[' && parts.host.back() == ']') {
    parts.host = parts.host.substr(1, parts.host.size() - 2);
  }
  return parts;
}

bool IsPort(const std::string& text) {
  if (text.empty() || text.size() > 5 || text.find_first_not_of("0123456789") != std::string::npos) return false;
  const int port = std::stoi(text);
  return port >= 1 && port <= 65535;
}

}  // namespace

void CheckAddress(const std::string& text) {
  if (IsUnix(text)) {
    const size_t length = text.size() - kUnixLength;
    if (length >= 1 && length < sizeof(sockaddr_un::sun_path)) return;
  } else {
    const HostPort parts = Split(text);
    if (!parts.host.empty() && IsPort(parts.port)) return;
  }
  throw Error(Code::kConfig, "'" + text + "' is not an address; expected host:port, [v6]:port or unix:/path");
}

std::string HostOf(const std::string& text) { return IsUnix(text) ? "" : Split(text).host; }

SocketAddress Resolve(const std::string& text, bool ask) {
  SocketAddress address;
  if (IsUnix(text)) {
    auto* out = reinterpret_cast<sockaddr_un*>(&address.storage);
    out->sun_family = AF_UNIX;
    std::memcpy(out->sun_path, text.data() + kUnixLength, text.size() - kUnixLength);
    address.length = sizeof(sockaddr_un);
    return address;
  }
  const HostPort parts = Split(text);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (ask ? 0 : AI_NUMERICHOST);
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(parts.host.c_str(), parts.port.c_str(), &hints, &found);
  if (failed != 0) {
    if (!ask) return address;
    throw Error(Code::kUnavailable, "the name " + parts.host + " is not resolved: " + gai_strerror(failed));
  }
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  freeaddrinfo(found);
  return address;
}

}  // namespace elasticctr::net
