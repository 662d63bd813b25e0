// Appends strings and numbers as JSON, for hot paths.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace elasticctr {

// With quotes. Bytes that are not UTF-8 become U+FFFD, so the output is always valid JSON.
void AppendJsonString(std::string* out, std::string_view text);
void AppendNumber(std::string* out, uint64_t value);
// The shortest text that parses back to the same number; null if it is not finite.
void AppendFloat(std::string* out, float value);
void AppendDouble(std::string* out, double value);

}  // namespace elasticctr
