// Where the separators of a text are: between lines, and within one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace elasticctr {

inline constexpr size_t kMaxTabs = 64;

// Writes how far from `p` each TAB of [p, end) stands into `at` and returns how many there are. Stops after 64 bytes
// that bring the count over kMaxTabs. REQUIRES: room for kMaxTabs + 64 and kLookahead readable bytes after `end`.
size_t FindTabs(const char* p, const char* end, uint32_t* at);

// Same for blanks (spaces and TABs), all of them. REQUIRES: room for end - p + 8.
size_t FindBlanks(const char* p, const char* end, uint32_t* at);

// How many bytes of `text` whole lines take, and how many lines these are.
struct WholeLines {
  size_t bytes, count;
};
WholeLines CutLines(std::string_view text);

}  // namespace elasticctr
