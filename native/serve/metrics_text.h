// GET /metrics: what docs/serve.md lists, as Prometheus text.
#pragma once

#include <string>

#include "net/server.h"
#include "serve/control_queue.h"
#include "serve/engine.h"
#include "serve/http_session.h"
#include "serve/protocol_stats.h"

namespace elasticctr::serve {

struct MetricsSources {
  const Engine& engine;
  const net::Server& server;
  const SessionStats& sessions;
  const ProtocolStats& protocols;
  const ControlQueue& control;
  uint64_t started_ns;
  bool is_ready;
};

std::string MetricsText(const MetricsSources& sources);

}  // namespace elasticctr::serve
