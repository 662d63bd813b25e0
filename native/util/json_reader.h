// JSON read value by value, in one pass and in place: for requests from strangers, where building a tree would cost
// more than the request is worth.
//
//   JsonReader reader(body, 16);
//   std::string_view key;
//   for (reader.BeginObject(); reader.NextKey(&key);) {
//     if (key == "id") id = reader.String();
//     else reader.Skip();                            // every value is taken or skipped, once
//   }
//   reader.End();
//
// Strict (RFC 8259): no comments, no trailing commas, strings are UTF-8, nesting is bounded. Everything that is not as
// asked for is a DataError that says what and at which byte. Views given out live as long as the reader and the text.
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
  explicit JsonReader(std::string_view text, uint32_t max_depth = 16, const char* what = "the body is no JSON")
      : begin_(text.data()), at_(begin_), end_(begin_ + text.size()), what_(what), depth_(max_depth) {}

  // What comes.
  Kind Peek();

  void BeginObject();
  // False: the object has ended. Otherwise the key's value comes next.
  bool NextKey(std::string_view* key);
  // Where the reader is, and the text from there to a later place: between two calls of NextKey, or of BeginObject and
  // NextKey, the text of a whole key with its comma and colon.
  const char* place() const { return at_; }
  std::string_view TextFrom(const char* place) const { return {place, static_cast<size_t>(at_ - place)}; }
  // Goes past the next key if it stands there letter by letter as `text`, which TextFrom gave for a key at the same
  // place (first or not) of a like object. False: nothing happened; ask NextKey.
  bool TakeSameKey(std::string_view text) {
    if (static_cast<size_t>(end_ - at_) < text.size() || std::memcmp(at_, text.data(), text.size()) != 0) return false;
    at_ += text.size();
    is_first_ = false;
    return true;
  }
  // Whether a string begins right here.
  bool IsAtString() const { return at_ != end_ && *at_ == '"'; }
  void BeginArray();
  // False: the array has ended. Otherwise an element comes next.
  bool NextElement();

  std::string_view String();
  bool Bool();
  void Null();
  double Double();    // the nearest one; beyond the largest: DataError
  uint64_t Uint64();  // a whole number from 0 to 2^64 - 1, written without point and exponent
  int64_t Int64();
  std::string_view Number();  // its text
  std::string_view Skip();    // any value; its text, which is JSON
  // As Skip, but of an object or array only quotes and brackets are looked at, not even which belong together: for text
  // that another reader will read in full.
  std::string_view SkipBrackets();
  // Nothing but blanks follows. Throws DataError.
  void End();

  // Throws DataError about where the reader is.
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
  uint32_t depth_;         // how many levels may still be entered
  bool is_first_ = false;  // nothing of the innermost object or array was read yet
  std::deque<std::string> unescaped_;
};

}  // namespace elasticctr
