// A reader and writer of the protobuf wire format (protobuf.dev/programming-guides/encoding), for messages of other
// systems' protocols: field by field, without generated code and without copying.
//
//   protobuf::Reader reader(bytes, "ModelInferRequest");
//   while (reader.Next()) {
//     switch (reader.field()) {
//       case 1: name = reader.AsString(); break;
//       case 5: ReadTensor(reader.AsMessage("InferInputTensor")); break;
//     }                                            // fields that are not read are skipped, their length checked
//   }
//
// Strict: a length beyond the end, a varint of more than 64 bits, a field number of 0, a group, a value of another wire
// type than requested, and nesting beyond kMaxDepth are DataErrors that name the message and the field. Returned views
// point into the bytes read.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "util/coding.h"
#include "util/varint.h"

namespace elasticctr::protobuf {

enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

inline constexpr uint32_t kMaxDepth = 32;

bool IsUtf8(std::string_view text);

class Reader {
 public:
  // `message` is the type's name, for errors. REQUIRES: `bytes` and `message` outlive the reader.
  explicit Reader(std::string_view bytes, const char* message = "message", uint32_t depth = kMaxDepth)
      : at_(bytes.data()), end_(bytes.data() + bytes.size()), message_(message), depth_(depth) {}

  // Moves to the next field; returns false if there is none. Throws DataError.
  bool Next();

  uint32_t field() const { return field_; }
  WireType type() const { return type_; }

  // The value of the current field. Throws DataError if it has another wire type or does not fit.
  uint64_t AsUint64() const { return Expect(WireType::kVarint), value_; }
  int64_t AsInt64() const { return static_cast<int64_t>(AsUint64()); }
  uint32_t AsUint32() const;
  int32_t AsInt32() const;
  int64_t AsSint64() const { return FromZigZag(AsUint64()); }
  bool AsBool() const { return AsUint64() != 0; }
  uint64_t AsFixed64() const { return Expect(WireType::kFixed64), value_; }
  uint32_t AsFixed32() const { return Expect(WireType::kFixed32), static_cast<uint32_t>(value_); }
  double AsDouble() const { return std::bit_cast<double>(AsFixed64()); }
  float AsFloat() const { return std::bit_cast<float>(AsFixed32()); }
  std::string_view AsBytes() const { return Expect(WireType::kBytes), bytes_; }
  std::string_view AsString() const;  // must be UTF-8
  Reader AsMessage(const char* message) const;

  // Appends this field of a repeated number, packed or not, to `out`. At most `limit` values in all.
  void AppendUint64(std::vector<uint64_t>* out, size_t limit = SIZE_MAX) const;
  void AppendInt64(std::vector<int64_t>* out, size_t limit = SIZE_MAX) const;
  void AppendUint32(std::vector<uint32_t>* out, size_t limit = SIZE_MAX) const;
  void AppendInt32(std::vector<int32_t>* out, size_t limit = SIZE_MAX) const;
  void AppendBool(std::vector<uint8_t>* out, size_t limit = SIZE_MAX) const;
  void AppendFloat(std::vector<float>* out, size_t limit = SIZE_MAX) const;
  void AppendDouble(std::vector<double>* out, size_t limit = SIZE_MAX) const;

  static int64_t FromZigZag(uint64_t v) { return static_cast<int64_t>((v >> 1) ^ (~(v & 1) + 1)); }

  // Throws DataError about the current field.
  [[noreturn]] void Fail(const std::string& what) const;

 private:
  void Expect(WireType type) const {
    if (type_ != type) [[unlikely]]
      FailType(type);
  }
  [[noreturn]] void FailType(WireType type) const;
  uint64_t ReadVarint(const char** at, const char* end) const;
  template <typename T, typename Convert>
  void AppendVarints(std::vector<T>* out, size_t limit, Convert convert) const;
  template <typename T>
  void AppendFixed(std::vector<T>* out, size_t limit, WireType type) const;

  const char* at_;
  const char* end_;
  const char* message_;
  uint32_t depth_;
  uint32_t field_ = 0;
  WireType type_ = WireType::kVarint;
  uint64_t value_ = 0;
  std::string_view bytes_;
};

// Appends fields to a string, including those with default values.
class Writer {
 public:
  explicit Writer(std::string* out) : out_(out) {}

  void Uint64(uint32_t field, uint64_t v) { Tag(field, WireType::kVarint), Varint(v); }
  void Int64(uint32_t field, int64_t v) { Uint64(field, static_cast<uint64_t>(v)); }
  void Int32(uint32_t field, int32_t v) { Int64(field, v); }
  void Sint64(uint32_t field, int64_t v) {
    Uint64(field, (static_cast<uint64_t>(v) << 1) ^ static_cast<uint64_t>(v >> 63));
  }
  void Bool(uint32_t field, bool v) { Uint64(field, v); }
  void Fixed64(uint32_t field, uint64_t v) { Tag(field, WireType::kFixed64), Raw(&v, sizeof v); }
  void Fixed32(uint32_t field, uint32_t v) { Tag(field, WireType::kFixed32), Raw(&v, sizeof v); }
  void Double(uint32_t field, double v) { Fixed64(field, std::bit_cast<uint64_t>(v)); }
  void Float(uint32_t field, float v) { Fixed32(field, std::bit_cast<uint32_t>(v)); }
  void Bytes(uint32_t field, std::string_view v) { Bytes(field, v.data(), v.size()); }
  void Bytes(uint32_t field, const void* data, size_t size) {
    Tag(field, WireType::kBytes), Varint(size), Raw(data, size);
  }
  void PackedFloat(uint32_t field, const float* v, size_t count) { Bytes(field, v, count * sizeof *v); }
  void PackedInt64(uint32_t field, const int64_t* v, size_t count);

  // A nested message: the fields written between Begin and End belong to it. End takes what Begin returned.
  size_t Begin(uint32_t field);
  void End(size_t begin);

 private:
  void Tag(uint32_t field, WireType type) { Varint(uint64_t{field} << 3 | static_cast<uint8_t>(type)); }
  void Varint(uint64_t v) {
    char bytes[kMaxVarintBytes];
    out_->append(bytes, static_cast<size_t>(PutVarint(bytes, v) - bytes));
  }
  void Raw(const void* data, size_t size) { out_->append(static_cast<const char*>(data), size); }

  std::string* out_;
};

}  // namespace elasticctr::protobuf
