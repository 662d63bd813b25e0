// The server's state as JSON and as Prometheus text.
#pragma once

#include <string>

#include "cube/server/control.h"
#include "cube/server/metrics.h"
#include "net/loop/server.h"

namespace elasticctr::cube {

struct ServiceFacts {
  const Control* control;
  Metrics* metrics;
  net::Server* server;
  uint64_t started_ns;
};

// The answer to `GET /v1/status` and the wire's describe.
std::string StatusJson(const ServiceFacts& facts);
// The answer to `GET /metrics`.
std::string MetricsText(const ServiceFacts& facts);
// {"error": {"code": …, "message": …}}
std::string ErrorJson(Code code, std::string_view message);

}  // namespace elasticctr::cube
