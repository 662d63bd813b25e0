// Shared by the tests of the engine, in addition to toys.h.
#pragma once

#include "serve/engine/engine.h"
#include "tests/check.h"
#include "tests/serve/toys.h"

namespace elasticctr::serve {

inline EngineOptions Small(size_t workers) {
  EngineOptions options;
  options.workers = workers;
  options.queue_ms = 60'000;
  options.timeout_ms = 60'000;
  return options;
}

inline bool Starts(const std::string& text, const std::string& with) { return text.rfind(with, 0) == 0; }
inline bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace elasticctr::serve
