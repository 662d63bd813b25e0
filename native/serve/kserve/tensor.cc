#include "serve/kserve/tensor.h"

#include <cstring>
#include <limits>

#include "sample/format/line.h"
#include "serve/http/status.h"
#include "util/number.h"
#include "util/status.h"

namespace elasticctr::serve::kserve {

namespace {

struct TypeFacts {
  const char* name;
  size_t size;
};

constexpr TypeFacts kTypes[] = {{"BOOL", 1},  {"UINT8", 1}, {"UINT16", 2}, {"UINT32", 4}, {"UINT64", 8}, {"INT8", 1},
                                {"INT16", 2}, {"INT32", 4}, {"INT64", 8},  {"FP32", 4},   {"FP64", 8},   {"BYTES", 0}};

// The field of InferTensorContents that holds elements of a type.
uint32_t ContentsField(DataType type) {
  switch (type) {
    case DataType::kBool: return 1;
    case DataType::kInt8:
    case DataType::kInt16:
    case DataType::kInt32: return 2;
    case DataType::kInt64: return 3;
    case DataType::kUint8:
    case DataType::kUint16:
    case DataType::kUint32: return 4;
    case DataType::kUint64: return 5;
    case DataType::kFp32: return 6;
    case DataType::kFp64: return 7;
    case DataType::kBytes: return 8;
  }
  return 0;
}

template <typename T>
void Append(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Integers may be written as strings, since many JSON libraries round beyond 2^53.
template <typename T>
T WholeNumber(JsonReader* reader) {
  const auto value = ParseNumber<T>(reader->Peek() == JsonReader::Kind::kString ? reader->String() : reader->Number());
  if (!value) reader->Fail(std::string("expected an integer of 64 bits ") + (std::is_signed_v<T> ? "" : "from 0 on"));
  return *value;
}

void AppendJson(JsonReader* reader, Tensor* tensor, size_t* found, size_t limit) {
  for (reader->BeginArray(); reader->NextElement();) {
    JsonReader::Kind kind = reader->Peek();
    if (kind == JsonReader::Kind::kArray) {
      AppendJson(reader, tensor, found, limit);
      continue;
    }
    if (++*found > limit) throw TooLarge("a tensor has more than " + std::to_string(limit) + " elements");
    switch (tensor->stored) {
      case DataType::kBytes: tensor->texts.push_back(reader->String()); break;
      case DataType::kFp64:
        // JSON has no NaN; null means that there is no value.
        if (kind == JsonReader::Kind::kNull) {
          reader->Null();
          Append(&tensor->owned, std::numeric_limits<double>::quiet_NaN());
        } else {
          Append(&tensor->owned, reader->Double());
        }
        break;
      case DataType::kInt64: Append(&tensor->owned, WholeNumber<int64_t>(reader)); break;
      default:
        if (tensor->type == DataType::kBool && kind == JsonReader::Kind::kBool) {
          Append(&tensor->owned, uint64_t{reader->Bool()});
        } else {
          Append(&tensor->owned, WholeNumber<uint64_t>(reader));
        }
    }
  }
}

}  // namespace

DataType DataTypeOf(std::string_view name, std::string_view tensor) {
  for (size_t i = 0; i < std::size(kTypes); ++i) {
    if (name == kTypes[i].name) return static_cast<DataType>(i);
  }
  throw Error(Code::kData, "input " + Quote(tensor) + " has the datatype " + Quote(name) +
                               "; send BOOL, INT8 … INT64, UINT8 … UINT64, FP32, FP64 or BYTES");
}

const char* NameOf(DataType type) { return kTypes[static_cast<size_t>(type)].name; }
size_t SizeOf(DataType type) { return kTypes[static_cast<size_t>(type)].size; }

void Tensor::Fail(const std::string& what) const {
  throw Error(Code::kData, "input " + Quote(name) + " (" + NameOf(type) + " " + ShapeText() + "): " + what);
}

std::string Tensor::ShapeText() const {
  std::string text = "[";
  for (size_t i = 0; i < shape.size() && i < 4; ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() > 4 ? ", …]" : "]");
}

void Tensor::SetShape(size_t limit) {
  if (shape.empty() || shape.size() > 2) Fail("must have one or two dimensions");
  count = 1;
  for (int64_t dimension : shape) {
    if (dimension < 0) Fail("has a dimension below 0");
    if (__builtin_mul_overflow(count, static_cast<size_t>(dimension), &count)) Fail("has too many elements");
  }
  if (count > limit) throw TooLarge("input " + Quote(name) + " has more than " + std::to_string(limit) + " elements");
}

void Tensor::SetRaw(std::string_view bytes) {
  stored = type;
  if (type != DataType::kBytes) {
    if (bytes.size() % SizeOf(type) != 0 || bytes.size() / SizeOf(type) != count) {
      Fail("has " + std::to_string(bytes.size()) + " bytes where its shape asks for " + std::to_string(count) +
           " elements of " + std::to_string(SizeOf(type)));
    }
    numbers = bytes.data();
    return;
  }
  if (bytes.size() / 4 < count) Fail("has fewer strings than its shape asks for");
  texts.reserve(count);
  const char* at = bytes.data();
  size_t left = bytes.size();
  for (size_t i = 0; i < count; ++i) {
    if (left < 4) Fail("has fewer strings than its shape asks for");
    size_t size = DecodeFixed32(at);
    at += 4;
    left -= 4;
    if (size > left) Fail("has a string that is longer than the bytes left");
    texts.emplace_back(at, size);
    at += size;
    left -= size;
  }
  if (left != 0) Fail("has more bytes than its strings take");
}

void Tensor::SetContents(protobuf::Reader contents, size_t limit) {
  const uint32_t wanted = ContentsField(type);
  std::vector<int64_t> integers;
  std::vector<uint64_t> naturals;
  std::vector<int32_t> small_integers;
  std::vector<uint32_t> small_naturals;
  std::vector<uint8_t> bools;
  std::vector<float> floats;
  std::vector<double> doubles;
  while (contents.Next()) {
    if (contents.field() > 8) continue;
    if (contents.field() != wanted) Fail("has its elements in a list of another type");
    switch (wanted) {
      case 1: contents.AppendBool(&bools, limit); break;
      case 2: contents.AppendInt32(&small_integers, limit); break;
      case 3: contents.AppendInt64(&integers, limit); break;
      case 4: contents.AppendUint32(&small_naturals, limit); break;
      case 5: contents.AppendUint64(&naturals, limit); break;
      case 6: contents.AppendFloat(&floats, limit); break;
      case 7: contents.AppendDouble(&doubles, limit); break;
      default:
        if (texts.size() >= limit) contents.Fail("has more than " + std::to_string(limit) + " values");
        texts.push_back(contents.AsBytes());
    }
  }
  size_t found = texts.size();
  auto keep = [&](DataType as, const auto& values) {
    stored = as;
    found = values.size();
    owned.assign(reinterpret_cast<const char*>(values.data()), found * sizeof values[0]);
    numbers = owned.data();
  };
  switch (wanted) {
    case 1: keep(DataType::kUint8, bools); break;
    case 2: keep(DataType::kInt32, small_integers); break;
    case 3: keep(DataType::kInt64, integers); break;
    case 4: keep(DataType::kUint32, small_naturals); break;
    case 5: keep(DataType::kUint64, naturals); break;
    case 6: keep(DataType::kFp32, floats); break;
    case 7: keep(DataType::kFp64, doubles); break;
    default: stored = DataType::kBytes;
  }
  if (found != count) Fail("has " + std::to_string(found) + " elements");
}

void Tensor::SetJson(JsonReader* reader, size_t limit) {
  stored = type == DataType::kBytes ? DataType::kBytes
           : IsFloat(type)          ? DataType::kFp64
           : IsSigned(type)         ? DataType::kInt64
                                    : DataType::kUint64;
  size_t found = 0;
  AppendJson(reader, this, &found, limit);
  if (found != count) Fail("has " + std::to_string(found) + " elements");
  numbers = owned.data();
}

}  // namespace elasticctr::serve::kserve
