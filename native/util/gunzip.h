// Gzip (RFC 1952) in memory, for request bodies: one or more complete members, with sizes and checksums verified. The
// input is untrusted: no field is trusted, no more output is produced than allowed, and the work is bounded by the
// size of the input. Deflate itself is Boost.Beast's port of zlib, a header we depend on anyway.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace elasticctr {

// Whether the bytes start like a gzip member.
bool IsGzip(std::string_view bytes);

// The size of the last member as `gzip` states it, for estimates; 0 if `gzip` is too short to have one.
uint32_t GunzippedBytes(std::string_view gzip);

// Decompresses `gzip` into `plain`. Returns false if that is more than `limit` bytes. Calls `on_step` with the number
// of bytes produced so far, at the start and after each step (at most a few milliseconds); an exception from it ends
// the work. Throws DataError if the input is not gzip, damaged, truncated, followed by other data, or made almost
// entirely of empty blocks.
bool Gunzip(std::string_view gzip, size_t limit, const std::function<void(size_t made)>& on_step, std::string* plain);

}  // namespace elasticctr
