// What a TLS port answers to a client without TLS, in that client's own protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace elasticctr::net {

// `data`: what the client sent first. Empty: it starts a TLS handshake, or speaks nothing we know.
std::string PlainRefusal(const uint8_t* data, size_t size);

}  // namespace elasticctr::net
