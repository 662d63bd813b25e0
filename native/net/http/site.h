// Requests that a web page makes a browser send. A server without a token would take them for its user's own, so any
// page open on this machine could command it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "net/http/http.h"

namespace elasticctr::net {

struct SiteRefusal {
  int status;
  std::string why;
};

// Whether only this machine can reach a server that listens at `host`, as far as its text says.
bool IsLoopback(std::string_view host);

// Why a server without a token that listens at `own_host` must not answer; nothing: it may. Refused are pages of other
// sites (Origin), names that lead here but are not ours (Host, where only this machine can ask), and the types of body
// that a browser sends to other sites without asking first.
std::optional<SiteRefusal> CheckSite(const HttpRequest& request, std::string_view own_host);

}  // namespace elasticctr::net
