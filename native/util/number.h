// Parses text that must be exactly one number.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace elasticctr {

// Returns nullopt if anything follows the number, or it does not fit T.
template <typename T>
std::optional<T> ParseNumber(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace elasticctr
