#include "util/json_reader.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "util/protobuf.h"
#include "util/status.h"

namespace elasticctr {

namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

void AppendUtf8(std::string* out, uint32_t code) {
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
    return;
  }
  int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  out->push_back(static_cast<char>((more == 1 ? 0xC0 : more == 2 ? 0xE0 : 0xF0) | code >> (6 * more)));
  while (more-- > 0) out->push_back(static_cast<char>(0x80 | ((code >> (6 * more)) & 0x3F)));
}

// The first byte from `at` on that is a quote, a backslash, a control character or not ASCII. If there is none, some
// byte less than 8 bytes before the end.
const char* FindInString(const char* at, const char* end) {
  constexpr uint64_t kOnes = 0x0101010101010101, kHigh = 0x8080808080808080;
  for (; end - at >= 8; at += 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    const uint64_t quote = word ^ (kOnes * '"'), backslash = word ^ (kOnes * '\\');
    // The lowest set bit is right; a borrow can only corrupt those above it.
    const uint64_t found =
        (((quote - kOnes) & ~quote) | ((backslash - kOnes) & ~backslash) | ((word - kOnes * 0x20) & ~word) | word) &
        kHigh;
    if (found != 0) return at + (std::endian::native == std::endian::little ? std::countr_zero(found) / 8 : 0);
  }
  return at;
}

// Classifies 64 bytes; bit i stands for byte i.
struct Marks {
  uint64_t quotes = 0, backslashes = 0, opens = 0, closes = 0;
};

Marks MarksOf(const char* at) {
  Marks marks;
#ifdef __SSE2__
  for (int i = 0; i < 64; i += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + i));
    const __m128i folded = _mm_or_si128(bytes, _mm_set1_epi8(0x20));  // [ as {, ] as }
    auto where = [i](__m128i x, char c) {
      return uint64_t{static_cast<uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(x, _mm_set1_epi8(c))))} << i;
    };
    marks.quotes |= where(bytes, '"');
    marks.backslashes |= where(bytes, '\\');
    marks.opens |= where(folded, '{');
    marks.closes |= where(folded, '}');
  }
#else
  for (int i = 0; i < 64; ++i) {
    marks.quotes |= uint64_t{at[i] == '"'} << i;
    marks.backslashes |= uint64_t{at[i] == '\\'} << i;
    marks.opens |= uint64_t{(at[i] | 0x20) == '{'} << i;
    marks.closes |= uint64_t{(at[i] | 0x20) == '}'} << i;
  }
#endif
  return marks;
}

// Bit i: whether an odd number of the bits up to i are set.
uint64_t PrefixXor(uint64_t bits) {
  for (int shift = 1; shift < 64; shift *= 2) bits ^= bits << shift;
  return bits;
}

}  // namespace

void JsonReader::Fail(const std::string& what) const {
  throw Error(Code::kData, std::string(what_) + ": " + what + " at byte " + std::to_string(at_ - begin_));
}

JsonReader::Kind JsonReader::Peek() {
  SkipBlanks();
  if (at_ == end_) Fail("it ends where a value is expected");
  switch (*at_) {
    case '{': return Kind::kObject;
    case '[': return Kind::kArray;
    case '"': return Kind::kString;
    case 't':
    case 'f': return Kind::kBool;
    case 'n': return Kind::kNull;
    default:
      if (*at_ == '-' || IsDigit(*at_)) return Kind::kNumber;
      Fail("expected a value");
  }
}

void JsonReader::Enter(char open, const char* expected) {
  SkipBlanks();
  if (at_ == end_ || *at_ != open) Fail(expected);
  if (depth_ == 0) Fail("objects and arrays are nested too deeply");
  --depth_;
  ++at_;
  is_first_ = true;
}

// Skips the comma before the next member and returns true, or skips the closing bracket and returns false.
bool JsonReader::Next(char close, bool* is_first) {
  SkipBlanks();
  *is_first = is_first_;
  is_first_ = false;
  if (at_ == end_) Fail("it ends inside an object or array");
  if (*at_ == close) {
    ++at_;
    ++depth_;
    return false;
  }
  if (*is_first) return true;
  if (*at_ != ',') Fail(std::string("expected , or ") + close);
  ++at_;
  return true;
}

void JsonReader::BeginObject() { Enter('{', "expected an object"); }

bool JsonReader::NextKey(std::string_view* key) {
  bool is_first;
  if (!Next('}', &is_first)) return false;
  SkipBlanks();
  if (at_ == end_ || *at_ != '"') Fail("expected a key");
  *key = String();
  SkipBlanks();
  if (at_ == end_ || *at_ != ':') Fail("expected a colon");
  ++at_;
  return true;
}

void JsonReader::BeginArray() { Enter('[', "expected an array"); }

bool JsonReader::NextElement() {
  bool is_first;
  if (!Next(']', &is_first)) return false;
  if (!is_first) {
    SkipBlanks();
    if (at_ != end_ && *at_ == ']') Fail("expected a value");
  }
  return true;
}

std::string_view JsonReader::String() {
  SkipBlanks();
  if (at_ == end_ || *at_ != '"') Fail("expected a string");
  const char* start = ++at_;
  bool is_ascii = true;
  at_ = FindInString(at_, end_);
  while (at_ != end_ && *at_ != '"') {
    auto byte = static_cast<unsigned char>(*at_);
    if (byte == '\\') return Unescape(start);
    if (byte < 0x20) Fail("a string has a control character");
    is_ascii &= byte < 0x80;
    ++at_;
  }
  if (at_ == end_) Fail("it ends inside a string");
  std::string_view text(start, static_cast<size_t>(at_ - start));
  if (!is_ascii && !protobuf::IsUtf8(text)) Fail("a string is not UTF-8");
  ++at_;
  return text;
}

uint32_t JsonReader::Hex4() {
  if (end_ - at_ < 4) Fail("it ends inside a string");
  uint32_t code = 0;
  auto [after, error] = std::from_chars(at_, at_ + 4, code, 16);
  if (error != std::errc() || after != at_ + 4) Fail("\\u is not followed by four hexadecimal digits");
  at_ += 4;
  return code;
}

// Reads the rest of a string, from the escape at at_.
std::string_view JsonReader::Unescape(const char* start) {
  std::string text(start, at_);
  while (true) {
    if (at_ == end_) Fail("it ends inside a string");
    auto byte = static_cast<unsigned char>(*at_);
    if (byte == '"') break;
    if (byte < 0x20) Fail("a string has a control character");
    ++at_;
    if (byte != '\\') {
      text.push_back(static_cast<char>(byte));
      continue;
    }
    if (at_ == end_) Fail("it ends inside a string");
    switch (char escape = *at_++) {
      case '"':
      case '\\':
      case '/': text.push_back(escape); break;
      case 'b': text.push_back('\b'); break;
      case 'f': text.push_back('\f'); break;
      case 'n': text.push_back('\n'); break;
      case 'r': text.push_back('\r'); break;
      case 't': text.push_back('\t'); break;
      case 'u': {
        uint32_t code = Hex4();
        if (code >= 0xD800 && code < 0xDC00) {
          if (end_ - at_ < 6 || at_[0] != '\\' || at_[1] != 'u') Fail("half of a surrogate pair");
          at_ += 2;
          uint32_t low = Hex4();
          if (low < 0xDC00 || low > 0xDFFF) Fail("half of a surrogate pair");
          code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        } else if (code >= 0xDC00 && code < 0xE000) {
          Fail("half of a surrogate pair");
        }
        AppendUtf8(&text, code);
        break;
      }
      default: Fail("unknown escape");
    }
  }
  if (!protobuf::IsUtf8(text)) Fail("a string is not UTF-8");
  ++at_;
  unescaped_.push_back(std::move(text));
  return unescaped_.back();
}

void JsonReader::Word(std::string_view word) {
  if (static_cast<size_t>(end_ - at_) < word.size() || std::string_view(at_, word.size()) != word) {
    Fail("expected a value");
  }
  at_ += word.size();
}

bool JsonReader::Bool() {
  if (Peek() != Kind::kBool) Fail("expected true or false");
  bool value = *at_ == 't';
  Word(value ? "true" : "false");
  return value;
}

void JsonReader::Null() {
  if (Peek() != Kind::kNull) Fail("expected null");
  Word("null");
}

std::string_view JsonReader::Number() {
  SkipBlanks();
  const char* start = at_;
  const char* p = at_;
  auto digits = [&] {
    if (p == end_ || !IsDigit(*p)) Fail("expected a number");
    while (p != end_ && IsDigit(*p)) ++p;
  };
  if (p != end_ && *p == '-') ++p;
  const char* whole = p;
  digits();
  if (*whole == '0' && p - whole > 1) Fail("a number has a leading zero");
  if (p != end_ && *p == '.') ++p, digits();
  if (p != end_ && (*p | 0x20) == 'e') {
    if (++p != end_ && (*p == '+' || *p == '-')) ++p;
    digits();
  }
  at_ = p;
  return {start, static_cast<size_t>(p - start)};
}

double JsonReader::Double() {
  std::string_view text = Number();
  double value = 0;
  auto [after, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) {
    // Underflow counts as 0; from_chars does not tell it from overflow.
    value = std::strtod(std::string(text).c_str(), nullptr);
  } else if (error != std::errc()) {
    Fail("expected a number");
  }
  if (!std::isfinite(value)) Fail("a number is too large");
  return value;
}

template <typename T>
T JsonReader::Whole(const char* expected) {
  std::string_view text = Number();
  T value = 0;
  auto [after, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || after != text.data() + text.size()) Fail(expected);
  return value;
}

uint64_t JsonReader::Uint64() { return Whole<uint64_t>("expected an integer from 0 to 2^64 - 1"); }

int64_t JsonReader::Int64() { return Whole<int64_t>("expected an integer from -2^63 to 2^63 - 1"); }

std::string_view JsonReader::Skip() {
  Kind kind = Peek();
  const char* start = at_;
  std::string_view key;
  switch (kind) {
    case Kind::kObject:
      for (BeginObject(); NextKey(&key);) Skip();
      break;
    case Kind::kArray:
      for (BeginArray(); NextElement();) Skip();
      break;
    case Kind::kString: String(); break;
    case Kind::kNumber: Number(); break;
    case Kind::kBool: Bool(); break;
    case Kind::kNull: Null(); break;
  }
  return {start, static_cast<size_t>(at_ - start)};
}

std::string_view JsonReader::SkipBrackets() {
  Kind kind = Peek();
  if (kind != Kind::kObject && kind != Kind::kArray) return Skip();
  const char* start = at_;
  const char* at = at_;
  uint64_t depth = 0;
  bool is_inside = false, is_escaped = false;  // in a string; after a backslash in it
  auto take = [&](const char* last) {
    at_ = last + 1;
    return std::string_view(start, static_cast<size_t>(at_ - start));
  };
  while (at != end_) {
    const bool is_block = end_ - at >= 64 && !is_escaped;
    const Marks marks = is_block ? MarksOf(at) : Marks{};
    if (!is_block || marks.backslashes != 0) {
      for (const char* stop = at + std::min<ptrdiff_t>(64, end_ - at); at != stop; ++at) {
        if (is_inside) {
          is_inside = is_escaped || *at != '"';
          is_escaped = !is_escaped && *at == '\\';
        } else if (*at == '"') {
          is_inside = true;
        } else if ((*at | 0x20) == '{') {
          ++depth;
        } else if ((*at | 0x20) == '}' && --depth == 0) {
          return take(at);
        }
      }
      continue;
    }
    const uint64_t strings = PrefixXor(marks.quotes) ^ (is_inside ? ~uint64_t{0} : 0);
    const uint64_t opens = marks.opens & ~strings, closes = marks.closes & ~strings;
    const auto down = static_cast<uint64_t>(std::popcount(closes));
    if (down < depth) {
      depth += static_cast<uint64_t>(std::popcount(opens)) - down;
    } else {
      for (uint64_t left = opens | closes; left != 0; left &= left - 1) {
        if ((opens & left & (~left + 1)) != 0) {
          ++depth;
        } else if (--depth == 0) {
          return take(at + std::countr_zero(left));
        }
      }
    }
    is_inside = strings >> 63 != 0;
    at += 64;
  }
  Fail("it ends inside an object or array");
}

void JsonReader::End() {
  SkipBlanks();
  if (at_ != end_) Fail("unexpected data after the value");
}

}  // namespace elasticctr
