// Connects the engine to the request log: the contents of an answered request's line.
#pragma once

#include "serve/engine/engine.h"
#include "serve/request_log/request_log.h"

namespace elasticctr::serve {

// Adds an answered request if it is in the log's sample. For Engine::OnFinished.
void LogFinished(const Finished& finished, RequestLog* log);

}  // namespace elasticctr::serve
