// Checks a pserver's answer to attach.
#pragma once

#include <cstdint>
#include <string>

#include "ps/client/client.h"

namespace elasticctr::ps {

// Throws FailedPrecondition for a pserver of another place or model than the client's, DataError for an answer that
// cannot be read.
void CheckAttached(const std::string& answer, const ClientOptions& options, uint32_t shard);

}  // namespace elasticctr::ps
