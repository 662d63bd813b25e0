// CRC-32C (Castagnoli), the checksum of every block on disk and every frame on the wire.
#pragma once

#include <cstddef>
#include <cstdint>

namespace elasticctr {

// The CRC of the bytes that `crc` covers followed by these. Start with 0. Uses the SSE4.2 instruction where available.
uint32_t Crc32c(uint32_t crc, const void* data, size_t size);

}  // namespace elasticctr
