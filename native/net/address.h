// The address a server listens at: `host:port`, `[v6]:port` or `unix:/path`.
#pragma once

#include <sys/socket.h>

#include <string>

namespace elasticctr::net {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;  // 0: not known
};

// Throws ConfigError for text that names no address.
void CheckAddress(const std::string& text);

// The address's host, without brackets; empty for a Unix socket. REQUIRES: CheckAddress(text) did not throw.
std::string HostOf(const std::string& text);

// Throws Unavailable if a name cannot be resolved. With `ask` false no resolver is asked: a host that is not numeric
// gives length 0. REQUIRES: CheckAddress(text) did not throw.
SocketAddress Resolve(const std::string& text, bool ask);

}  // namespace elasticctr::net
