// Why an answer is degraded: the text for every protocol.
#pragma once

#include <string>
#include <vector>

#include "serve/codec/codec.h"

namespace elasticctr::serve {

inline std::vector<std::string> ReasonsOf(const Coverage& coverage) {
  std::vector<std::string> reasons;
  for (uint32_t shard : coverage.dead_shards) reasons.push_back("shard " + std::to_string(shard) + " did not answer");
  if (coverage.late) reasons.push_back("Cube was late");
  if (coverage.is_below) {
    reasons.push_back("found " + std::to_string(coverage.found) + " of " + std::to_string(coverage.asked) + " rows");
  }
  return reasons;
}

}  // namespace elasticctr::serve
