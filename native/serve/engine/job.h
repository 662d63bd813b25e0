// A request in the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "serve/codec/codec.h"

namespace elasticctr::serve {

struct Job {
  std::unique_ptr<Request> request;
  uint64_t queued_ns = 0;
  uint64_t deadline_ns = 0;
  std::string shadow_model, shadow_variant;  // of a shadow: the variant to score it
};

}  // namespace elasticctr::serve
