// Gzip (RFC 1952) in memory, for bodies of requests: one member, all of it there, its size and checksum checked. Bytes
// come from anybody: nothing is believed, and no more is made than the end of the stream says there is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace elasticctr {

// How many bytes `gzip` says it holds, known before any work is done; 0 if it is too short to say.
uint32_t GunzippedBytes(std::string_view gzip);

// Those bytes. Throws DataError: no gzip, damaged, or one that says less or more than it holds.
std::string Gunzip(std::string_view gzip);

}  // namespace elasticctr
