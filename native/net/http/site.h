// Requests that a web page makes a browser send. A server without a token would take them for its user's own, so any
// page open on this machine could control it.
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

// Whether a server that listens at `host` can be reached from this machine only, judging by the text of the address.
bool IsLoopback(std::string_view host);

// Why a server without a token that listens at `own_host` must refuse the request; empty: it may answer. Refused are
// pages of other sites (Origin), foreign names that resolve to this machine (Host, if the server listens on loopback),
// and the content types that a browser sends to other sites without a preflight request.
std::optional<SiteRefusal> CheckSite(const HttpRequest& request, std::string_view own_host);

}  // namespace elasticctr::net
