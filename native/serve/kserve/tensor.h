// A tensor of KServe V2 (Open Inference) from a request: raw bytes, typed lists of gRPC, or JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "util/json_reader.h"
#include "util/protobuf.h"

namespace elasticctr::serve::kserve {

enum class DataType : uint8_t {
  kBool,
  kUint8,
  kUint16,
  kUint32,
  kUint64,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFp32,
  kFp64,
  kBytes
};

// Throws DataError, also for FP16 and BF16, which no slot takes.
DataType DataTypeOf(std::string_view name, std::string_view tensor);
const char* NameOf(DataType type);
size_t SizeOf(DataType type);  // bytes of an element; 0 for BYTES

inline bool IsFloat(DataType type) { return type == DataType::kFp32 || type == DataType::kFp64; }
inline bool IsSigned(DataType type) { return type >= DataType::kInt8 && type <= DataType::kInt64; }

// Elements are in the request's body, or in `owned` if they had to be converted. Views and pointers are valid as long
// as the body and the tensor, which must not be copied or moved once it has elements.
struct Tensor {
  std::string_view name;
  DataType type = DataType::kFp32;
  std::vector<int64_t> shape;
  size_t count = 0;  // elements, by the shape

  DataType stored = DataType::kFp32;    // how numbers are stored in memory: typed and JSON lists are wider than `type`
  const char* numbers = nullptr;        // little-endian, maybe unaligned
  std::vector<std::string_view> texts;  // of BYTES
  std::string owned;

  // Sets `count`. Throws DataError for a negative dimension and more than `limit` elements.
  void SetShape(size_t limit);

  // Each sets the elements and throws DataError if their number is not `count`.
  void SetRaw(std::string_view bytes);                        // BYTES: each after its length in 4 bytes
  void SetContents(protobuf::Reader contents, size_t limit);  // InferTensorContents
  // A list, nested or not. The tensor may keep views into `reader`.
  void SetJson(JsonReader* reader, size_t limit);

  [[noreturn]] void Fail(const std::string& what) const;
  std::string ShapeText() const;
};

}  // namespace elasticctr::serve::kserve
