// Detects a connection's protocol from its first bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace elasticctr::net {

enum class Protocol : uint8_t { kUndecided, kWire, kResp, kHttp, kBrpc, kTls, kUnknown };

// kUndecided: these bytes could still become more than one of them.
Protocol Sniff(const uint8_t* data, size_t size);

}  // namespace elasticctr::net
