// The answer of a TLS port to a client without TLS, in that client's own protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace elasticctr::net {

// `data`: the client's first bytes. Returns an empty string for TLS and for protocols that get no answer.
std::string PlainRefusal(const uint8_t* data, size_t size);

}  // namespace elasticctr::net
