#include "util/protobuf.h"

#include <limits>
#include <type_traits>

#include "util/status.h"

namespace elasticctr::protobuf {

namespace {

constexpr uint32_t kMaxField = (1u << 29) - 1;

const char* NameOf(WireType type) {
  switch (type) {
    case WireType::kVarint: return "a varint";
    case WireType::kFixed64: return "64 bits";
    case WireType::kBytes: return "length-delimited bytes";
    case WireType::kFixed32: return "32 bits";
  }
  return "unknown";
}

}  // namespace

bool IsUtf8(std::string_view text) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  const auto* end = p + text.size();
  while (p < end) {
    if (*p < 0x80) {
      ++p;
      continue;
    }
    int more = *p >= 0xF0 ? 3 : *p >= 0xE0 ? 2 : 1;
    if (*p < 0xC2 || *p > 0xF4 || end - p <= more) return false;
    // The second byte rules out overlong forms, surrogates and values beyond U+10FFFF.
    unsigned char low = *p == 0xE0 ? 0xA0 : *p == 0xF0 ? 0x90 : 0x80;
    unsigned char high = *p == 0xED ? 0x9F : *p == 0xF4 ? 0x8F : 0xBF;
    if (p[1] < low || p[1] > high) return false;
    for (int i = 2; i <= more; ++i)
      if ((p[i] & 0xC0) != 0x80) return false;
    p += more + 1;
  }
  return true;
}

void Reader::Fail(const std::string& what) const {
  throw Error(Code::kData, std::string(message_) + ", field " + std::to_string(field_) + ": " + what +
                               "; send a protobuf message of this type");
}

void Reader::FailType(WireType type) const {
  Fail(std::string("is encoded as ") + NameOf(type_) + " instead of " + NameOf(type));
}

uint64_t Reader::ReadVarint(const char** at, const char* end) const {
  uint64_t value = 0;
  switch (TakeVarint(at, end, &value)) {
    case VarintEnd::kGood: return value;
    case VarintEnd::kCut: Fail("the bytes end inside a number");
    case VarintEnd::kTooLarge: break;
  }
  Fail("a number has more than 64 bits");
}

bool Reader::Next() {
  if (at_ == end_) return false;
  uint64_t tag = ReadVarint(&at_, end_);
  if (tag >> 3 == 0 || tag >> 3 > kMaxField) Fail("is followed by a field with an invalid number");
  field_ = static_cast<uint32_t>(tag >> 3);
  auto left = static_cast<size_t>(end_ - at_);
  switch (tag & 7) {
    case 0:
      type_ = WireType::kVarint;
      value_ = ReadVarint(&at_, end_);
      return true;
    case 1:
      type_ = WireType::kFixed64;
      if (left < 8) Fail("the bytes end inside a number");
      value_ = DecodeFixed64(at_);
      at_ += 8;
      return true;
    case 2: {
      type_ = WireType::kBytes;
      uint64_t size = ReadVarint(&at_, end_);
      left = static_cast<size_t>(end_ - at_);
      if (size > left)
        Fail("is " + std::to_string(size) + " bytes long, but only " + std::to_string(left) + " are left");
      bytes_ = {at_, static_cast<size_t>(size)};
      at_ += size;
      return true;
    }
    case 5:
      type_ = WireType::kFixed32;
      if (left < 4) Fail("the bytes end inside a number");
      value_ = DecodeFixed32(at_);
      at_ += 4;
      return true;
    case 3:
    case 4: Fail("is a group, which is not supported");
    default: Fail("has an unknown wire type");
  }
}

uint32_t Reader::AsUint32() const {
  uint64_t value = AsUint64();
  if (value > std::numeric_limits<uint32_t>::max()) Fail("does not fit in 32 bits");
  return static_cast<uint32_t>(value);
}

int32_t Reader::AsInt32() const {
  int64_t value = AsInt64();
  if (value != static_cast<int32_t>(value)) Fail("does not fit in 32 bits");
  return static_cast<int32_t>(value);
}

std::string_view Reader::AsString() const {
  std::string_view text = AsBytes();
  if (!IsUtf8(text)) Fail("is not UTF-8");
  return text;
}

Reader Reader::AsMessage(const char* message) const {
  std::string_view bytes = AsBytes();
  if (depth_ == 0) Fail("messages are nested too deeply");
  return Reader(bytes, message, depth_ - 1);
}

template <typename T, typename Convert>
void Reader::AppendVarints(std::vector<T>* out, size_t limit, Convert convert) const {
  auto append = [&](uint64_t value) {
    if (out->size() >= limit) Fail("has more than " + std::to_string(limit) + " values");
    out->push_back(convert(value));
  };
  if (type_ == WireType::kVarint) return append(value_);
  std::string_view bytes = AsBytes();
  const char* at = bytes.data();
  const char* end = at + bytes.size();
  while (at != end) append(ReadVarint(&at, end));
}

template <typename T>
void Reader::AppendFixed(std::vector<T>* out, size_t limit, WireType type) const {
  const void* data = &value_;
  size_t count = 1;
  if (type_ != type) {
    std::string_view bytes = AsBytes();
    if (bytes.size() % sizeof(T) != 0) Fail("is not a whole number of values");
    data = bytes.data();
    count = bytes.size() / sizeof(T);
  }
  if (count == 0) return;
  if (out->size() > limit || count > limit - out->size()) Fail("has more than " + std::to_string(limit) + " values");
  size_t before = out->size();
  out->resize(before + count);
  std::memcpy(out->data() + before, data, count * sizeof(T));
}

void Reader::AppendUint64(std::vector<uint64_t>* out, size_t limit) const {
  AppendVarints(out, limit, [](uint64_t v) { return v; });
}

void Reader::AppendInt64(std::vector<int64_t>* out, size_t limit) const {
  AppendVarints(out, limit, [](uint64_t v) { return static_cast<int64_t>(v); });
}

void Reader::AppendUint32(std::vector<uint32_t>* out, size_t limit) const {
  AppendVarints(out, limit, [this](uint64_t v) {
    if (v > std::numeric_limits<uint32_t>::max()) Fail("has a value that does not fit in 32 bits");
    return static_cast<uint32_t>(v);
  });
}

void Reader::AppendInt32(std::vector<int32_t>* out, size_t limit) const {
  AppendVarints(out, limit, [this](uint64_t v) {
    auto value = static_cast<int64_t>(v);
    if (value != static_cast<int32_t>(value)) Fail("has a value that does not fit in 32 bits");
    return static_cast<int32_t>(value);
  });
}

void Reader::AppendBool(std::vector<uint8_t>* out, size_t limit) const {
  AppendVarints(out, limit, [](uint64_t v) { return static_cast<uint8_t>(v != 0); });
}

void Reader::AppendFloat(std::vector<float>* out, size_t limit) const { AppendFixed(out, limit, WireType::kFixed32); }

void Reader::AppendDouble(std::vector<double>* out, size_t limit) const { AppendFixed(out, limit, WireType::kFixed64); }

void Writer::PackedInt64(uint32_t field, const int64_t* v, size_t count) {
  size_t begin = Begin(field);
  for (size_t i = 0; i < count; ++i) Varint(static_cast<uint64_t>(v[i]));
  End(begin);
}

size_t Writer::Begin(uint32_t field) {
  Tag(field, WireType::kBytes);
  return out_->size();
}

void Writer::End(size_t begin) {
  std::string length;
  Writer(&length).Varint(out_->size() - begin);
  out_->insert(begin, length);
}

}  // namespace elasticctr::protobuf
