// The protobuf wire format: written messages read back, known bytes mean what the specification says, and arbitrary
// bytes do no harm.
#include "util/protobuf.h"

#include <cmath>
#include <limits>
#include <random>

#include "tests/check.h"
#include "util/status.h"

using namespace elasticctr;
using protobuf::Reader;
using protobuf::WireType;
using protobuf::Writer;

namespace {

using namespace std::string_literals;

template <typename Fn>
bool IsRefused(Fn&& fn, const char* part) {
  try {
    fn();
  } catch (const Error& error) {
    return error.code() == Code::kData && std::string(error.what()).find(part) != std::string::npos;
  }
  return false;
}

void Drain(std::string bytes) {
  Reader reader(bytes, "M");
  while (reader.Next()) {
  }
}

// The examples of protobuf.dev/programming-guides/encoding.
void TestKnownBytes() {
  std::string bytes = "\x08\x96\x01"s;
  Reader varint(bytes);
  CHECK(varint.Next() && varint.field() == 1 && varint.AsUint64() == 150 && varint.AsInt32() == 150 && !varint.Next());

  bytes = "\x12\x07testing"s;
  Reader text(bytes);
  CHECK(text.Next() && text.field() == 2 && text.AsString() == "testing" && !text.Next());

  bytes = "\x1a\x03\x08\x96\x01"s;
  Reader outer(bytes);
  CHECK(outer.Next() && outer.field() == 3);
  Reader inner = outer.AsMessage("Inner");
  CHECK(inner.Next() && inner.AsUint64() == 150 && !inner.Next());

  bytes = "\x32\x06\x03\x8e\x02\x9e\xa7\x05"s;
  Reader packed(bytes);
  std::vector<uint64_t> values;
  CHECK(packed.Next() && packed.field() == 6);
  packed.AppendUint64(&values);
  CHECK((values == std::vector<uint64_t>{3, 270, 86942}));

  bytes = "\x08\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"s;
  Reader negative(bytes);
  CHECK(negative.Next() && negative.AsInt32() == -2 && negative.AsInt64() == -2);
  CHECK(IsRefused([&] { negative.AsUint32(); }, "32 bits"));
  CHECK(Reader::FromZigZag(0) == 0 && Reader::FromZigZag(1) == -1 && Reader::FromZigZag(2) == 1);
  CHECK(Reader::FromZigZag(0xfffffffeu) == 0x7fffffff && Reader::FromZigZag(0xffffffffu) == -0x80000000ll);
}

void TestRoundTrip() {
  std::string bytes;
  Writer writer(&bytes);
  writer.Uint64(1, std::numeric_limits<uint64_t>::max());
  writer.Int64(2, std::numeric_limits<int64_t>::min());
  writer.Sint64(3, -7);
  writer.Sint64(3, std::numeric_limits<int64_t>::min());
  writer.Bool(4, true);
  writer.Double(5, -0.1);
  writer.Float(6, 3.5f);
  writer.Bytes(7, "a\0b"s);
  float floats[] = {1, -2, 0.5f};
  writer.PackedFloat(8, floats, 3);
  writer.Float(8, 9);  // the same field, not packed
  int64_t shape[] = {500, -1, 1ll << 40};
  writer.PackedInt64(9, shape, 3);
  writer.Int64(9, 4);
  size_t outer = writer.Begin(536870911);
  size_t inner = writer.Begin(1);
  writer.Bytes(2, std::string(1000, 'x'));
  writer.End(inner);
  writer.Int32(3, -1);
  writer.End(outer);

  Reader reader(bytes, "M");
  CHECK(reader.Next() && reader.field() == 1 && reader.AsUint64() == std::numeric_limits<uint64_t>::max());
  CHECK(reader.Next() && reader.AsInt64() == std::numeric_limits<int64_t>::min());
  CHECK(reader.Next() && reader.AsSint64() == -7);
  CHECK(reader.Next() && reader.AsSint64() == std::numeric_limits<int64_t>::min());
  CHECK(reader.Next() && reader.AsBool());
  CHECK(reader.Next() && reader.type() == WireType::kFixed64 && reader.AsDouble() == -0.1);
  CHECK(reader.Next() && reader.type() == WireType::kFixed32 && reader.AsFloat() == 3.5f);
  CHECK(reader.Next() && reader.AsBytes() == "a\0b"s);
  std::vector<float> read_floats;
  for (int i = 0; i < 2; ++i) {
    CHECK(reader.Next() && reader.field() == 8);
    reader.AppendFloat(&read_floats);
  }
  CHECK((read_floats == std::vector<float>{1, -2, 0.5f, 9}));
  std::vector<int64_t> read_shape;
  for (int i = 0; i < 2; ++i) {
    CHECK(reader.Next() && reader.field() == 9);
    reader.AppendInt64(&read_shape);
  }
  CHECK((read_shape == std::vector<int64_t>{500, -1, 1ll << 40, 4}));
  CHECK(reader.Next() && reader.field() == 536870911);
  Reader message = reader.AsMessage("Outer");
  CHECK(message.Next() && message.field() == 1);
  Reader text = message.AsMessage("Inner");
  CHECK(text.Next() && text.AsString() == std::string(1000, 'x') && !text.Next());
  CHECK(message.Next() && message.AsInt32() == -1 && !message.Next());
  CHECK(!reader.Next() && !reader.Next());
}

void TestRefusals() {
  CHECK(IsRefused([] { Drain("\x08"); }, "end inside a number"));
  CHECK(IsRefused([] { Drain("\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02"); }, "64 bits"));
  CHECK(IsRefused([] { Drain("\x08" + std::string(11, '\x80')); }, "64 bits"));
  CHECK(IsRefused([] { Drain("\x09\1\2\3\4\5\6\7"s); }, "end inside a number"));
  CHECK(IsRefused([] { Drain("\x0d\1\2\3"s); }, "end inside a number"));
  CHECK(IsRefused([] { Drain("\x12\x05text"); }, "only 4 are left"));
  CHECK(IsRefused([] { Drain("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01 "); }, "18446744073709551615 bytes long"));
  CHECK(IsRefused([] { Drain("\x00\x01"s); }, "invalid number"));
  CHECK(IsRefused([] { Drain("\xf8\xff\xff\xff\x7f\x01"); }, "invalid number"));
  CHECK(IsRefused([] { Drain("\x0b\x0c"); }, "group"));
  CHECK(IsRefused([] { Drain("\x0c"); }, "group"));
  CHECK(IsRefused([] { Drain("\x0e"); }, "unknown wire type"));
  CHECK(IsRefused([] { Drain("\x08\x01\x12\x05"); }, "M, field 2"));

  std::string bytes = "\x0a\x03\x01\x02\x80"s;
  Reader packed(bytes);
  std::vector<uint64_t> values;
  CHECK(packed.Next());
  CHECK(IsRefused([&] { packed.AppendUint64(&values); }, "end inside a number"));
  CHECK(IsRefused([&] { packed.AsUint64(); }, "instead of a varint"));
  CHECK(IsRefused([&] { packed.AsString(); }, "not UTF-8"));
  std::vector<float> floats;
  CHECK(IsRefused([&] { packed.AppendFloat(&floats); }, "whole number of values"));
  values.clear();
  bytes = "\x0a\x04\x01\x02\x03\x04"s;
  Reader four(bytes);
  CHECK(four.Next());
  CHECK(IsRefused([&] { four.AppendUint64(&values, 3); }, "more than 3 values"));
  CHECK(values.size() == 3);
  CHECK(IsRefused([&] { four.AppendFloat(&floats, 0); }, "more than 0 values"));
  four.AppendFloat(&floats, 1);
  CHECK(floats.size() == 1);

  std::string nested;
  for (int i = 0; i < 100; ++i) {
    std::string outside;
    Writer(&outside).Bytes(1, nested);
    nested = outside;
  }
  auto descend = [](auto& self, Reader at, int level) -> void {
    CHECK(level <= 33);
    if (at.Next()) self(self, at.AsMessage("M"), level + 1);
  };
  CHECK(IsRefused([&] { descend(descend, Reader(nested), 0); }, "too deeply"));
}

void TestUtf8() {
  for (const char* good : {"", "a", "é", "€", "😀", "\xf4\x8f\xbf\xbf", "\xed\x9f\xbf", "\xee\x80\x80"})
    CHECK(protobuf::IsUtf8(good));
  for (const char* bad :
       {"\x80", "\xc3", "\xc0\x80", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe2\x82",
        "\xf0\x8f\xbf\xbf", "\xff", "\xe2\x28\xa1", "\xf0\x90\x28\xbc"})
    CHECK(!protobuf::IsUtf8(bad));
}

// Reads everything in every way; an invalid message throws, a valid one ends.
void ReadAll(const Reader& start, int level) {
  Reader reader = start;
  while (reader.Next()) {
    std::vector<uint64_t> integers;
    std::vector<float> floats;
    std::vector<double> doubles;
    std::vector<int32_t> small;
    auto attempt = [](auto&& fn) {
      try {
        fn();
      } catch (const Error& error) {
        CHECK(error.code() == Code::kData);
      }
    };
    attempt([&] { reader.AppendUint64(&integers, 100); });
    attempt([&] { reader.AppendInt32(&small, 100); });
    attempt([&] { reader.AppendFloat(&floats, 100); });
    attempt([&] { reader.AppendDouble(&doubles, 100); });
    attempt([&] { reader.AsString(); });
    CHECK(integers.size() <= 100 && floats.size() <= 100 && doubles.size() <= 100 && small.size() <= 100);
    if (level < 6) attempt([&] { ReadAll(reader.AsMessage("Inner"), level + 1); });
  }
}

void TestFuzz() {
  std::mt19937_64 random(7);
  std::string seed;
  Writer writer(&seed);
  writer.Bytes(1, "model");
  for (int i = 0; i < 3; ++i) {
    size_t begin = writer.Begin(5);
    writer.Bytes(1, "C" + std::to_string(i));
    int64_t shape[] = {500, 26};
    writer.PackedInt64(3, shape, 2);
    size_t contents = writer.Begin(5);
    float floats[] = {1, 2, 3, 4};
    writer.PackedFloat(6, floats, 4);
    writer.End(contents);
    writer.End(begin);
  }
  writer.Double(9, 1.5);
  for (int round = 0; round < 8'000; ++round) {
    std::string bytes = seed;
    for (size_t i = 0, changes = 1 + random() % 4; i < changes && !bytes.empty(); ++i) {
      size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0: bytes[at] = static_cast<char>(random()); break;
        case 1: bytes.erase(at, 1 + random() % 8); break;
        case 2: bytes.insert(at, 1 + random() % 8, static_cast<char>(random())); break;
        default: bytes.resize(at); break;
      }
    }
    try {
      ReadAll(Reader(std::string_view(bytes), "M"), 0);
    } catch (const Error& error) {
      CHECK(error.code() == Code::kData);
    }
  }
}

}  // namespace

int main() {
  TestKnownBytes();
  TestRoundTrip();
  TestRefusals();
  TestUtf8();
  TestFuzz();
  return 0;
}
