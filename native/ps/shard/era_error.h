// A frame of work that began before its pserver was rolled back to a checkpoint: its rows and cursors come from a state
// that no longer exists. Drop all requests in flight and continue in the pserver's era.
#pragma once

#include <cstdint>
#include <string>

#include "util/status.h"

namespace elasticctr::ps {

class EraError : public Error {
 public:
  EraError(const std::string& message, uint64_t era) : Error(Code::kFailedPrecondition, message), era_(era) {}
  uint64_t era() const { return era_; }  // the pserver's

 private:
  uint64_t era_;
};

}  // namespace elasticctr::ps
