// Reads JSON value by value, in one pass and in place: for untrusted requests, where building a tree would cost more
// than the request itself.
//
//   JsonReader reader(body, 16);
//   std::string_view key;
//   for (reader.BeginObject(); reader.NextKey(&key);) {
//     if (key == "id") id = reader.String();
//     else reader.Skip();                            // each value must be read or skipped exactly once
//   }
//   reader.End();
//
// Strict (RFC 8259): no comments, no trailing commas, strings are UTF-8, nesting is bounded. Anything unexpected is a
// DataError that says what is wrong and at which byte. Returned views are valid as long as the reader and the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>

namespace elasticctr {

class JsonReader {
 public:
  enum class Kind : uint8_t { kObject, kArray, kString, kNumber, kBool, kNull };

  // `what` begins every message. REQUIRES: it and `text` outlive the reader.
  explicit JsonReader(std::string_view text, uint32_t max_depth = 16, const char* what = "the body is not valid JSON")
      : begin_(text.data()), at_(begin_), end_(begin_ + text.size()), what_(what), depth_(max_depth) {}

  // The kind of the next value.
  Kind Peek();

  void BeginObject();
  // Returns false at the end of the object. Otherwise the key's value comes next.
  bool NextKey(std::string_view* key);
  // The reader's position, and the text between an earlier position and this one. Between two calls of NextKey, or
  // BeginObject and NextKey, that is the text of a whole key with its comma and colon.
  const char* place() const { return at_; }
  std::string_view TextFrom(const char* place) const { return {place, static_cast<size_t>(at_ - place)}; }
  // Skips the next key if its text is byte for byte `text`, which TextFrom returned for a key in the same position
  // (first or not) of a similar object. Returns false without effect otherwise; then call NextKey.
  bool TakeSameKey(std::string_view text) {
    if (static_cast<size_t>(end_ - at_) < text.size() || std::memcmp(at_, text.data(), text.size()) != 0) return false;
    at_ += text.size();
    is_first_ = false;
    return true;
  }
  // Whether a string begins right here.
  bool IsAtString() const { return at_ != end_ && *at_ == '"'; }
  void BeginArray();
  // Returns false at the end of the array. Otherwise an element comes next.
  bool NextElement();

  std::string_view String();
  bool Bool();
  void Null();
  double Double();    // rounded to nearest; DataError if too large
  uint64_t Uint64();  // an integer from 0 to 2^64 - 1, written without point or exponent
  int64_t Int64();
  std::string_view Number();  // its text
  std::string_view Skip();    // any value; its text, which is JSON
  // Like Skip, but looks only at the quotes and brackets of an object or array and does not even match bracket types:
  // for text that another reader will read in full.
  std::string_view SkipBrackets();
  // Throws DataError if anything but whitespace follows.
  void End();

  // Throws DataError with the reader's position.
  [[noreturn]] void Fail(const std::string& what) const;

 private:
  void SkipBlanks() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }
  bool Next(char close, bool* is_first);
  void Enter(char open, const char* expected);
  void Word(std::string_view word);
  template <typename T>
  T Whole(const char* expected);
  std::string_view Unescape(const char* start);
  uint32_t Hex4();

  const char* begin_;
  const char* at_;
  const char* end_;
  const char* what_;
  uint32_t depth_;         // levels that may still be entered
  bool is_first_ = false;  // nothing of the innermost object or array has been read
  std::deque<std::string> unescaped_;
};

}  // namespace elasticctr
