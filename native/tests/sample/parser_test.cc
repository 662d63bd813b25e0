// The text parsers: numbers compared with the C library, good and bad lines of every format, and mutated text, with
// which parsers must never read outside the buffer.
#include "sample/parser.h"

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>

#include "sample/bags.h"
#include "sample/format/number.h"
#include "sample/format/separators.h"
#include "tests/check.h"
#include "util/status.h"

using namespace elasticctr;

namespace {

constexpr TextFormat kFormats[] = {TextFormat::kFeasign, TextFormat::kSlot, TextFormat::kCriteo, TextFormat::kLibsvm,
                                   TextFormat::kLibffm};

ParserSpec MakeSpec(TextFormat format, bool hashed = false) {
  ParserSpec spec;
  spec.format = format;
  spec.labels = {"click"};
  if (format == TextFormat::kCriteo) {
    spec.dense = {{"dense", 13, Transform::kLog1p, {}, {}}};
    for (int i = 0; i < 26; ++i) spec.sparse.push_back({"C" + std::to_string(i + 1), !hashed, false, 4});
    return spec;
  }
  if (format != TextFormat::kFeasign) spec.dense = {{"dense_feature", 3, Transform::kNone, {}, {}}};
  if (format == TextFormat::kSlot) spec.weight = "weight";
  spec.sparse.push_back({"1", hashed, false, 4});
  if (format != TextFormat::kLibsvm) {
    spec.sparse.push_back({"22", hashed, true, 4});
    spec.sparse.push_back({"a_slot_with_a_rather_long_name", hashed, false, 4});
  }
  return spec;
}

std::string GoodLines(TextFormat format) {
  switch (format) {
    case TextFormat::kFeasign:
      return "1 0 5:1 18446744073709551615:22 7:a_slot_with_a_rather_long_name 8:zz\n1 1 3:22\n";
    case TextFormat::kSlot:
      return "click:1 dense_feature:0.5 dense_feature:-1e-3 dense_feature:3 1:5 22:123456789012 weight:2\n"
             "1:7 1:8 a_slot_with_a_rather_long_name:9 click:0 other:x\r\n\n";
    case TextFormat::kCriteo: {
      std::string line = "1\t1\t\t-3\t4\t5\t6\t7\t8\t9\t10\t1111\t12\t1382";
      for (int i = 0; i < 26; ++i) line += i % 5 == 0 ? "\t" : "\t68fd1e64";
      return line + "\n";
    }
    case TextFormat::kLibsvm: return "-1 1:0.5 3:1e-2 17:1 # comment\n+1 2:3 18446744073709551615:1\n";
    case TextFormat::kLibffm:
      return "1 1:5:1 22:77:0.5 dense_feature:0:1 dense_feature:1:2 dense_feature:2:3\n0 22:1:1 q:1:1\n";
  }
  return "";
}

// Parses from memory of exactly that size, so that a sanitizer sees any byte read outside.
std::unique_ptr<Block> ParseExactly(Parser* parser, const std::string& text) {
  std::unique_ptr<char[]> memory(new char[text.size()]);
  std::copy(text.begin(), text.end(), memory.get());
  return parser->Parse({memory.get(), text.size()}, 1);
}

void CheckConsistent(const Block& block, size_t slots) {
  CHECK(block.offset_count == slots * block.n + 1);
  CHECK(block.offsets[0] == 0);
  for (size_t i = 1; i < block.offset_count; ++i) {
    CHECK(block.offsets[i - 1] <= block.offsets[i]);
    CHECK(block.offsets[i] - block.offsets[i - 1] <= 4);
  }
  CHECK(static_cast<size_t>(block.offsets[block.offset_count - 1]) == block.value_count);
  CHECK(block.n + block.bad_count == block.lines);
  for (size_t i = 0; i < block.n * block.dense_dim; ++i) CHECK(std::isfinite(block.dense[i]));
  for (size_t i = 0; i < block.n; ++i) CHECK(block.labels[i] >= 0 && block.labels[i] <= 1);
}

void TestNumbers() {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200000; ++i) {
    const uint64_t value = random() >> (random() % 64);
    std::string text = std::to_string(value);
    const size_t size = text.size();
    text += std::string(1, " \t:\n\0x"[random() % 6]) + std::string(kLookahead, '7');
    uint64_t parsed;
    CHECK(ReadU64(text.data(), &parsed) == text.data() + size);
    CHECK(parsed == value);

    char decimal[512];
    const double number = std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 200) - 160);
    constexpr const char* kStyles[] = {"%.6g", "%.17g", "%.3f", "%.0f", "%.9e", "%.25g"};
    const int length = std::snprintf(decimal, sizeof decimal, kStyles[random() % 6], random() % 2 ? number : -number);
    text.assign(decimal, static_cast<size_t>(length));
    text += std::string(1 + kLookahead, '\n');
    double got;
    const char* end = text.data() + length;
    CHECK(ReadDouble(text.data(), end, &got) == end);
    CHECK(got == std::strtod(decimal, nullptr));
  }
  const auto read = [](std::string text, double* out) {
    const size_t size = text.size();
    text += std::string(kLookahead, '\0');
    const char* after = ReadDouble(text.data(), text.data() + size, out);
    return after == nullptr ? -1 : static_cast<int>(after - text.data());
  };
  double out;
  for (const char* bad : {"", "-", "+", ".", "-.", "nan", "inf", "-inf", "e5", "+-1", "--1", " 1"})
    CHECK(read(bad, &out) == -1);
  CHECK(read("1e400", &out) == 5 && std::isinf(out));
  CHECK(read("-1e400", &out) == 6 && std::isinf(out) && out < 0);
  CHECK(read("1e-400", &out) == 6 && out == 0);
  CHECK(read("0." + std::string(400, '0') + "1", &out) == 403 && out == 0);
  CHECK(read(std::string(400, '9') + "e-5", &out) == 403 && std::isinf(out));
  CHECK(read("-0", &out) == 2 && out == 0 && std::signbit(out));
  CHECK(read("+.5", &out) == 3 && out == 0.5);
  CHECK(read("5.", &out) == 2 && out == 5);
  for (const char* bad : {"18446744073709551616", "99999999999999999999", "100000000000000000000", "x", "-1", ""}) {
    uint64_t value;
    const std::string text = bad + std::string(kLookahead, '\n');
    CHECK(ReadU64(text.data(), &value) == nullptr);
  }
  uint64_t value;
  const std::string zeros = std::string(40, '0') + "12" + std::string(kLookahead, '\n');
  CHECK(ReadU64(zeros.data(), &value) == zeros.data() + 42 && value == 12);
}

// What the short readers accept must equal the result of the long ones for the same bytes; they leave the rest alone.
void TestShortNumbers() {
  std::mt19937 random(3);
  size_t numbers = 0, ids = 0;
  for (int i = 0; i < 300000; ++i) {
    std::string text;
    const size_t size = 1 + random() % 10;
    for (size_t k = 0; k < size; ++k) text += "0123456789012345678901234567890123456789..-+e /:"[random() % 48];
    const std::string whole = text + std::string(kLookahead, '\n');
    const char* end = whole.data() + size;
    text += "8.8" + std::string(kLookahead, '\n');  // must not affect the result
    uint64_t id = 0, long_id = 0;
    const bool is_id = size <= 8 && ReadU64(whole.data(), &long_id) == end;
    CHECK(ReadShortU64(text.data(), size, &id) == is_id);
    if (is_id) CHECK(id == long_id);
    ids += is_id;
    double number, long_number;
    if (ReadShortDouble(text.data(), size, &number)) {
      CHECK(ReadDouble(whole.data(), end, &long_number) == end);
      CHECK(std::bit_cast<uint64_t>(number) == std::bit_cast<uint64_t>(long_number));
      ++numbers;
    }
  }
  CHECK(ids > 30000 && numbers > 40000);
}

void TestBlanks() {
  std::mt19937 random(4);
  for (int i = 0; i < 2000; ++i) {
    std::string text(random() % 300, 'x');
    std::vector<uint32_t> expected;
    const unsigned rarity = 1 + random() % 30;
    for (uint32_t at = 0; at < text.size(); ++at) {
      if (random() % rarity == 0) {
        text[at] = random() % 4 == 0 ? '\t' : ' ';
        expected.push_back(at);
      }
    }
    const size_t size = text.size();
    text += std::string(kLookahead, ' ');
    std::vector<uint32_t> at(size + 8);
    CHECK(FindBlanks(text.data(), text.data() + size, at.data()) == expected.size());
    CHECK(std::equal(expected.begin(), expected.end(), at.begin()));
  }
}

void TestWholeLines() {
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    std::string text(random() % 40000, 'x');
    const unsigned rarity = 1 + random() % 3000;
    WholeLines expected{0, 0};
    for (size_t at = random() % rarity; at < text.size(); at += 1 + random() % rarity) {
      text[at] = '\n';
      expected = {at + 1, expected.count + 1};
    }
    const WholeLines found = CutLines(text);
    CHECK(found.bytes == expected.bytes && found.count == expected.count);
  }
}

void TestTabs() {
  std::mt19937 random(2);
  for (int i = 0; i < 2000; ++i) {
    std::string text(random() % 300, 'x');
    std::vector<uint32_t> expected;
    for (uint32_t at = 0; at < text.size() && expected.size() < 60; ++at) {
      if (random() % 6 == 0) {
        text[at] = '\t';
        expected.push_back(at);
      }
    }
    const size_t size = text.size();
    text += std::string(kLookahead, '\t');
    uint32_t at[kMaxTabs + 64];
    CHECK(FindTabs(text.data(), text.data() + size, at) == expected.size());
    CHECK(std::equal(expected.begin(), expected.end(), at));
  }
}

void TestGoodLines() {
  for (const TextFormat format : kFormats) {
    const ParserSpec spec = MakeSpec(format);
    Parser parser(spec, Split(0, 1, 0), 1);
    const auto block = ParseExactly(&parser, GoodLines(format));
    for (const auto& bad : block->bad)
      std::fprintf(stderr, "line %d: %s\n", static_cast<int>(bad.line), bad.reason.c_str());
    CHECK(block->bad_count == 0);
    CHECK(block->n == block->lines && block->n > 0);
    CheckConsistent(*block, spec.sparse.size());
  }
}

// Changes, removes, doubles and swaps bytes, using those that numbers and separators are made of.
std::string Mutate(std::string text, std::mt19937* random) {
  static constexpr char kBytes[] = "0123456789:\t \n\r.-+eE#nanif\0\xFF\x80";
  const std::string_view kAlphabet(kBytes, sizeof kBytes - 1);
  const auto pick = [&](size_t n) { return static_cast<size_t>((*random)()) % n; };
  for (size_t i = pick(12); i > 0 && !text.empty(); --i) {
    const size_t at = pick(text.size());
    switch (pick(5)) {
      case 0: text[at] = static_cast<char>((*random)()); break;
      case 1: text[at] = kAlphabet[pick(kAlphabet.size())]; break;
      case 2: text.erase(at, 1 + pick(8)); break;
      case 3: text.insert(at, text.substr(pick(text.size()), pick(40))); break;
      default: text.insert(at, 1 + pick(30), kAlphabet[pick(kAlphabet.size())]); break;
    }
  }
  return text;
}

void TestMutatedText() {
  std::mt19937 random(3);
  for (const TextFormat format : kFormats) {
    for (const bool hashed : {false, true}) {
      const ParserSpec spec = MakeSpec(format, hashed);
      Parser parser(spec, Split(0, 1, 0), 1);
      const std::string good = GoodLines(format);
      for (int i = 0; i < 6000; ++i) {
        const std::string text = Mutate(i % 3 ? good : good + good, &random);
        CheckConsistent(*ParseExactly(&parser, text), spec.sparse.size());
      }
    }
  }
}

bool AreEqual(const Block& a, const Block& b) {
  return a.n == b.n && a.lines == b.lines && a.next_line == b.next_line && a.bad_count == b.bad_count &&
         a.bad.size() == b.bad.size() &&
         std::equal(a.values, a.values + a.value_count, b.values, b.values + b.value_count) &&
         std::equal(a.offsets, a.offsets + a.offset_count, b.offsets, b.offsets + b.offset_count) &&
         std::equal(a.labels, a.labels + a.n, b.labels) && std::equal(a.dense, a.dense + a.n * a.dense_dim, b.dense) &&
         std::equal(a.bad.begin(), a.bad.end(), b.bad.begin(),
                    [](const BadLine& x, const BadLine& y) { return x.line == y.line && x.reason == y.reason; });
}

// The same block in one piece and in many, parsed by several callers at once.
void TestThreads() {
  std::mt19937 random(4);
  std::string text;
  for (int i = 0; i < 12000; ++i) {
    text += GoodLines(TextFormat::kSlot);
    if (i % 100 == 0) text += Mutate(GoodLines(TextFormat::kSlot), &random) + "\n";
  }
  Parser alone(MakeSpec(TextFormat::kSlot), Split(0.2, 0.9, 5), 1);
  Parser pooled(MakeSpec(TextFormat::kSlot), Split(0.2, 0.9, 5), 4);
  const auto expected = alone.Parse(text, 7);
  CHECK(expected->bad_count > 0 && expected->n > 1000);
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&] {
      for (int round = 0; round < 3; ++round) {
        CHECK(AreEqual(*pooled.Parse(text, 7), *expected));
        CHECK(AreEqual(*alone.Parse(text, 7), *expected));
      }
    });
  }
  for (auto& caller : callers) caller.join();
}

void TestSchemasThatDoNotFit() {
  const auto check = [](ParserSpec spec) {
    try {
      Parser parser(spec, Split(0, 1, 0), 1);
    } catch (const Error& e) {
      CHECK(e.code() == Code::kConfig);
      return;
    }
    CHECK(!"a schema that does not fit was taken");
  };
  ParserSpec spec = MakeSpec(TextFormat::kCriteo);
  spec.sparse.pop_back();
  spec.sparse[0].name = "x";
  check(spec);
  spec = MakeSpec(TextFormat::kFeasign);
  spec.dense = {{"d", 1, Transform::kNone, {}, {}}};
  check(spec);
  spec = MakeSpec(TextFormat::kSlot);
  spec.sparse[0].name = "a:b";
  check(spec);
  spec.sparse[0].name = "click";
  check(spec);
  spec = MakeSpec(TextFormat::kLibsvm);
  spec.sparse.push_back({"2", false, false, 1});
  check(spec);
  spec = MakeSpec(TextFormat::kLibffm);
  spec.weight = "w";
  check(spec);
}

}  // namespace

int main() {
  TestNumbers();
  TestShortNumbers();
  TestBlanks();
  TestWholeLines();
  TestTabs();
  TestGoodLines();
  TestMutatedText();
  TestThreads();
  TestSchemasThatDoNotFit();
  return 0;
}
