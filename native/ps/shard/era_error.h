// A frame of work begun before its pserver went back to a checkpoint: the rows it pulled and the cursors it asked for
// are of a state that is gone. Drop everything under way and continue in the pserver's era.
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
