// Checks a pserver's answer to attach.
#pragma once

#include <cstdint>
#include <string>

#include "ps/client/client.h"

namespace elasticctr::ps {

// Throws FailedPrecondition if the pserver has another shard or model than the client expects, DataError if the answer
// cannot be parsed.
void CheckAttached(const std::string& answer, const ClientOptions& options, uint32_t shard);

}  // namespace elasticctr::ps
