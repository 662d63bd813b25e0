// GET /metrics: the metrics listed in docs/how-to/serve.md, as Prometheus text.
#pragma once

#include <string>

#include "net/loop/server.h"
#include "serve/engine/engine.h"
#include "serve/engine/protocol_stats.h"
#include "serve/http/control_queue.h"
#include "serve/http/session.h"

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
