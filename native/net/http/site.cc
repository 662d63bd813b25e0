#include "net/http/site.h"

#include <strings.h>

#include <algorithm>

namespace elasticctr::net {
namespace {

bool Equals(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::strncasecmp(a.data(), b.data(), a.size()) == 0;
}

// "localhost:8500" without the port.
std::string_view NameOf(std::string_view authority) {
  if (authority.starts_with('[')) return authority.substr(0, std::min(authority.find(']'), authority.size() - 1) + 1);
  return authority.substr(0, authority.find(':'));
}

std::string_view Bare(std::string_view name) {
  return name.size() > 2 && name.front() == '[' && name.back() == ']' ? name.substr(1, name.size() - 2) : name;
}

bool IsForm(std::string_view content_type) {
  std::string_view type = content_type.substr(0, content_type.find(';'));
  while (!type.empty() && type.back() == ' ') type.remove_suffix(1);
  return Equals(type, "application/x-www-form-urlencoded") || Equals(type, "multipart/form-data") ||
         Equals(type, "text/plain");
}

}  // namespace

bool IsLoopback(std::string_view host) {
  const std::string_view name = Bare(host);
  if (Equals(name, "localhost") || name == "::1") return true;
  // 127.0.0.1, not 127.example.com.
  return name.starts_with("127.") && name.find_first_not_of("0123456789.") == std::string_view::npos;
}

std::optional<SiteRefusal> CheckSite(const HttpRequest& request, std::string_view own_host) {
  const std::string_view name = NameOf(request.host);
  if (!request.origin.empty()) {
    const size_t scheme = request.origin.find("://");
    const std::string_view site =
        scheme == std::string::npos ? "" : NameOf(std::string_view(request.origin).substr(scheme + 3));
    if (site.empty() || !(IsLoopback(site) || Equals(site, name))) {
      return SiteRefusal{403, "a page of another site (Origin " + request.origin.substr(0, 200) +
                                  ") may not ask a server without a token; start it with --token-file"};
    }
  }
  if (!name.empty() && IsLoopback(own_host) && !IsLoopback(name) && !Equals(Bare(name), Bare(own_host))) {
    return SiteRefusal{403, "Host " + std::string(name.substr(0, 200)) +
                                " is not this server, which listens on this machine alone and has no token; ask for "
                                "localhost, or start it with --token-file"};
  }
  if (request.method != "GET" && request.method != "HEAD" && IsForm(request.content_type)) {
    return SiteRefusal{415, "a server without a token takes no forms (Content-Type " +
                                request.content_type.substr(0, 200) + "); send 'Content-Type: application/json'"};
  }
  return std::nullopt;
}

}  // namespace elasticctr::net
