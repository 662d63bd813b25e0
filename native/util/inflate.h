// Deflate (RFC 1951) in memory. Bytes come from anybody: nothing is believed, and no more is made than allowed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace elasticctr {

// What one deflate stream holds; `rest` is what follows it. Throws DataError: damaged, cut, or over `limit` bytes.
std::string Inflate(std::string_view deflated, size_t limit, std::string_view* rest);

}  // namespace elasticctr
