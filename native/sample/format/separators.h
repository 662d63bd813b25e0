// Finds the separators of a text: between lines and within a line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace elasticctr {

inline constexpr size_t kMaxTabs = 64;

// Writes the offset from `p` of each TAB in [p, end) to `at` and returns their number. Stops after 64 bytes that bring
// the count over kMaxTabs. REQUIRES: room for kMaxTabs + 64 and kLookahead readable bytes after `end`.
size_t FindTabs(const char* p, const char* end, uint32_t* at);

// The same for blanks (spaces and TABs), all of them. REQUIRES: room for end - p + 8.
size_t FindBlanks(const char* p, const char* end, uint32_t* at);

// The number of bytes of `text` that whole lines take, and the number of those lines.
struct WholeLines {
  size_t bytes, count;
};
WholeLines CutLines(std::string_view text);

}  // namespace elasticctr
