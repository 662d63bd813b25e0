// JSON in place: accepts the same texts as Boost.JSON, with the same values; arbitrary bytes do no harm.
#include "util/json_reader.h"

#include <boost/json.hpp>
#include <random>

#include "tests/check.h"
#include "util/status.h"

using namespace elasticctr;
namespace json = boost::json;

namespace {

bool IsSame(JsonReader* reader, const json::value& expected) {
  std::string_view key;
  switch (reader->Peek()) {
    case JsonReader::Kind::kObject: {
      if (!expected.is_object()) return false;
      size_t n = 0;
      for (reader->BeginObject(); reader->NextKey(&key); ++n) {
        const json::value* value = expected.get_object().if_contains(key);
        if (value == nullptr || !IsSame(reader, *value)) return false;
      }
      return n == expected.get_object().size();
    }
    case JsonReader::Kind::kArray: {
      if (!expected.is_array()) return false;
      size_t n = 0;
      for (reader->BeginArray(); reader->NextElement(); ++n) {
        if (n == expected.get_array().size() || !IsSame(reader, expected.get_array()[n])) return false;
      }
      return n == expected.get_array().size();
    }
    case JsonReader::Kind::kString: return expected.is_string() && reader->String() == expected.get_string();
    case JsonReader::Kind::kNumber:
      if (expected.is_uint64()) return reader->Uint64() == expected.get_uint64();
      if (expected.is_int64()) return reader->Int64() == expected.get_int64();
      return expected.is_double() && reader->Double() == expected.get_double();
    case JsonReader::Kind::kBool: return expected.is_bool() && reader->Bool() == expected.get_bool();
    case JsonReader::Kind::kNull: reader->Null(); return expected.is_null();
  }
  return false;
}

bool Takes(const std::string& text, uint32_t depth = 16) {
  JsonReader reader(text, depth);
  try {
    std::string_view all = reader.Skip();
    if (all[0] == '[' || all[0] == '{') CHECK(JsonReader(text).SkipBrackets() == all);
    CHECK(all.data() >= text.data() && all.data() + all.size() <= text.data() + text.size());
    reader.End();
    return true;
  } catch (const Error& error) {
    CHECK(error.code() == Code::kData && std::string(error.what()).find("at byte") != std::string::npos);
    return false;
  }
}

// The end that SkipBrackets finds, or npos. For texts that Skip accepts it must be the same end.
size_t BracketsEnd(const std::string& text) {
  JsonReader reader(text);
  try {
    std::string_view all = reader.SkipBrackets();
    CHECK(all.data() >= text.data() && all.data() + all.size() <= text.data() + text.size());
    return static_cast<size_t>(all.data() + all.size() - text.data());
  } catch (const Error& error) {
    CHECK(error.code() == Code::kData);
    return std::string::npos;
  }
}

void TestBrackets() {
  CHECK(BracketsEnd("[]]") == 2 && BracketsEnd("  {\"a\": \"}\"} ,") == 12);
  CHECK(BracketsEnd("[") == std::string::npos && BracketsEnd("[\"]") == std::string::npos);
  CHECK(BracketsEnd("\"ab\" ") == 4 && BracketsEnd("[\"\\\\\"]x") == 6);
  std::mt19937_64 random(12);
  for (int round = 0; round < 3000; ++round) {
    std::string text(random() % 3, ' ');
    text += '[';
    for (size_t i = 0, count = random() % 40; i < count; ++i) {
      if (i != 0) text += ',';
      text += R"({"slot)" + std::to_string(random() % 100) + R"(":")";
      for (size_t k = 0, length = random() % 90; k < length; ++k) text += "abc{}[],: \xc3\xa9"[random() % 10];
      // Escapes at all positions of a block, occasionally.
      if (random() % 8 == 0) text += R"(\\\"}\u007b\\)";
      text += R"(","n":[[1,2],{"x":{}}]})";
    }
    text += ']';
    const size_t end = text.size();
    text += ",\"next\": [1]}" + std::string(random() % 80, ' ');
    JsonReader reader(text);
    try {
      CHECK(static_cast<size_t>(reader.Skip().end() - text.data()) == end);
    } catch (const Error&) {
      continue;  // a cut UTF-8 sequence
    }
    CHECK(BracketsEnd(text) == end);
    BracketsEnd(text.substr(0, random() % text.size()));
  }
}

void TestAgainstBoost(const std::string& text) {
  boost::system::error_code error;
  json::parse_options options;
  options.numbers = json::number_precision::precise;
  json::value expected = json::parse(text, error, {}, options);
  CHECK(Takes(text) == !error);
  if (error) return;
  JsonReader reader(text, 32);
  CHECK(IsSame(&reader, expected));
}

const char* const kSeed =
    R"({"id": "a\u00e9\n\ud83d\ude00", "inputs": [{"name": "C1", "shape": [2, 1], "datatype": "UINT64",)"
    R"( "data": [18446744073709551615, 0], "e": -1.5e-3, "t": [true, false, null, {}, [], "é\\\"/"]}], "n": -9223372036854775808})";

void TestValues() {
  for (const char* text : {"{}", "[]", " [1 , 2]\n", "0", "-0", "1e5", "\"\"", "true", "null", "[1.5,-2E+3]", "[[[]]]",
                           "{\"a\":{\"b\":[1]}}", "\"\\u0000\"", "1e-400", kSeed})
    TestAgainstBoost(text);
  for (const char* text : {"",       " ",       "{",         "[",           "[1,]",
                           "[,1]",   "{\"a\"}", "{\"a\":}",  "{\"a\":1,}",  "{a:1}",
                           "01",     "-",       "1.",        ".5",          "1e",
                           "+1",     "NaN",     "tru",       "nulll",       "\"",
                           "\"\n\"", "\"\\x\"", "\"\\u12\"", "\"\\ud800\"", "\"\\udc00\"",
                           "[1 2]",  "{}{}",    "[1]]",      "\"\xff\"",    "\"\xc0\x80\\n\"",
                           "//",     "'a'"})
    TestAgainstBoost(text);
  CHECK(Takes("[[1]]", 2) && !Takes("[[[1]]]", 2) && Takes("[[],[],{}]", 2));
  CHECK(!Takes(std::string(100'000, '['), 16));

  std::string text = "[18446744073709551616, 1.0, -1, 1e999]";
  JsonReader reader(text);
  reader.BeginArray();
  for (int i = 0; i < 3; ++i) {
    CHECK(reader.NextElement());
    bool is_refused = false;
    try {
      reader.Uint64();
    } catch (const Error&) {
      is_refused = true;
    }
    CHECK(is_refused);
  }
  CHECK(reader.NextElement());
  bool is_refused = false;
  try {
    reader.Double();
  } catch (const Error&) {
    is_refused = true;
  }
  CHECK(is_refused && !reader.NextElement());
}

void TestFuzz() {
  std::mt19937_64 random(11);
  for (int round = 0; round < 8'000; ++round) {
    std::string bytes = kSeed;
    for (size_t i = 0, changes = 1 + random() % 3; i < changes && !bytes.empty(); ++i) {
      size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0: bytes[at] = static_cast<char>(random()); break;
        case 1: bytes.erase(at, 1 + random() % 4); break;
        case 2: bytes.insert(at, 1 + random() % 3, "{}[]\",:\\u0e-."[random() % 13]); break;
        default: bytes.resize(at); break;
      }
    }
    // Compares only what both read alike: Boost keeps the last of two equal keys.
    boost::system::error_code error;
    json::parse(bytes, error);
    CHECK(Takes(bytes) == !error);
    BracketsEnd(bytes);
  }
}

}  // namespace

int main() {
  TestValues();
  TestBrackets();
  TestFuzz();
  return 0;
}
