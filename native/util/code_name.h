// The name of an error code: the class in errors.py, and "code" in every JSON error.
#pragma once

#include "util/status.h"

namespace elasticctr {

inline const char* NameOf(Code code) {
  switch (code) {
    case Code::kConfig: return "ConfigError";
    case Code::kData: return "DataError";
    case Code::kNotFound: return "NotFound";
    case Code::kAlreadyExists: return "AlreadyExists";
    case Code::kCorruption: return "Corruption";
    case Code::kFailedPrecondition: return "FailedPrecondition";
    case Code::kUnauthorized: return "Unauthorized";
    case Code::kUnavailable: return "Unavailable";
    case Code::kDeadlineExceeded: return "DeadlineExceeded";
    case Code::kInternal: return "InternalError";
  }
  return "InternalError";
}

}  // namespace elasticctr
