// Gzip (RFC 1952) in memory, for bodies of requests: one member or several, all of them there, their sizes and
// checksums checked. Bytes come from anybody: nothing is believed, no more is made than allowed, and the work is
// bounded by the bytes that came. Deflate itself is Boost.Beast's port of zlib, which comes with the headers that are
// here anyway.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace elasticctr {

// Whether the bytes start as a gzip member does.
bool IsGzip(std::string_view bytes);

// How many bytes `gzip` says that its last member holds, for estimates; 0 if it is too short to say.
uint32_t GunzippedBytes(std::string_view gzip);

// What `gzip` holds. False: that is more than `limit` bytes. `on_step` is called with the bytes made so far, at the
// start and whenever a step is done (a few milliseconds at most); what it throws ends the work. Throws DataError: not
// gzip, damaged, cut, followed by something else, or made of little but empty blocks.
bool Gunzip(std::string_view gzip, size_t limit, const std::function<void(size_t made)>& on_step, std::string* plain);

}  // namespace elasticctr
