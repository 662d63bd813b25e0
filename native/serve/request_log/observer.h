// From the engine to the request log: what the line of an answered request holds.
#pragma once

#include "serve/engine/engine.h"
#include "serve/request_log/request_log.h"

namespace elasticctr::serve {

// Adds a request that was answered and is in the log's sample; others are passed over. For Engine::OnFinished.
void LogFinished(const Finished& finished, RequestLog* log);

}  // namespace elasticctr::serve
