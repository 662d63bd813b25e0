#include "util/json_text.h"

#include <charconv>
#include <cmath>

namespace elasticctr {
namespace {

// The length of the UTF-8 character at the start of `text`; 0 if there is none.
size_t CharacterBytes(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned char first = byte(0);
  size_t n = first < 0x80 ? 1 : first >= 0xC2 && first < 0xE0 ? 2 : first >= 0xE0 && first < 0xF0 ? 3 : 0;
  if (first >= 0xF0 && first < 0xF5) n = 4;
  if (n == 0 || n > text.size()) return 0;
  for (size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, beyond U+10FFFF.
  if (n == 3 && ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) >= 0xA0))) return 0;
  if (n == 4 && ((first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) >= 0x90))) return 0;
  return n;
}

void AppendEscape(std::string* out, unsigned char c) {
  switch (c) {
    case '"': out->append("\\\""); return;
    case '\\': out->append("\\\\"); return;
    case '\n': out->append("\\n"); return;
    case '\r': out->append("\\r"); return;
    case '\t': out->append("\\t"); return;
    default: break;
  }
  constexpr char kDigits[] = "0123456789abcdef";
  out->append("\\u00");
  out->push_back(kDigits[c >> 4]);
  out->push_back(kDigits[c & 15]);
}

template <typename T>
void AppendShortest(std::string* out, T value) {
  if (!std::isfinite(value)) {
    out->append("null");
    return;
  }
  char text[32];
  out->append(text, static_cast<size_t>(std::to_chars(text, text + sizeof text, value).ptr - text));
}

}  // namespace

void AppendJsonString(std::string* out, std::string_view text) {
  out->push_back('"');
  while (!text.empty()) {
    size_t plain = 0;
    while (plain < text.size()) {
      auto c = static_cast<unsigned char>(text[plain]);
      if (c < 0x20 || c >= 0x7F || c == '"' || c == '\\') break;
      ++plain;
    }
    out->append(text.substr(0, plain));
    text.remove_prefix(plain);
    if (text.empty()) break;
    auto c = static_cast<unsigned char>(text[0]);
    size_t n = 1;
    if (c < 0x80) {
      AppendEscape(out, c);
    } else if ((n = CharacterBytes(text)) != 0) {
      out->append(text.substr(0, n));
    } else {
      out->append("\xEF\xBF\xBD");
      n = 1;
    }
    text.remove_prefix(n);
  }
  out->push_back('"');
}

void AppendNumber(std::string* out, uint64_t value) {
  char text[24];
  out->append(text, static_cast<size_t>(std::to_chars(text, text + sizeof text, value).ptr - text));
}

void AppendFloat(std::string* out, float value) { AppendShortest(out, value); }

void AppendDouble(std::string* out, double value) { AppendShortest(out, value); }

}  // namespace elasticctr
