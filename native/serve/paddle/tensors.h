// The messages of Paddle Serving's GeneralModelService, as protobuf and as JSON: tensors by name in, tensors out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "serve/codec/codec.h"

namespace elasticctr::serve::paddle {

// Views point into the bytes read. Values are in one of the three lists; integers keep their bits, so that a negative
// one is a feasign above 2^63. Rows are given by lod (offsets, one level), else by the first number of the shape.
struct Tensor {
  std::string_view name, alias;
  std::vector<uint64_t> ints;
  std::vector<float> floats;
  std::vector<std::string_view> texts;
  std::vector<int32_t> shape, lod;

  size_t count() const { return ints.size() + floats.size() + texts.size(); }
};

struct TensorRequest {
  std::vector<Tensor> tensors;
  std::vector<std::string_view> fetch;
  uint64_t log_id = 0;
  bool profile = false;
};

// The protobuf message. Throws DataError naming the tensor.
void ReadRequest(std::string_view message, const Limits& limits, TensorRequest* request);

// Decodes tensor_content according to its elem_type.
void UnpackContent(std::string_view bytes, int32_t elem_type, Tensor* tensor);
// Refuses values in more than one field, and more of them than the limit; `values` accumulates over tensors.
void CheckValues(const Tensor& tensor, const Limits& limits, size_t* values);
// The name for errors: its own, or the alias.
std::string NameOf(const Tensor& tensor);

struct TensorAnswer {
  std::string_view engine;
  uint64_t log_id = 0;
  bool profile = false;
  uint64_t received_us = 0, answered_us = 0;
  struct Output {
    std::string_view name;
    size_t rows, width;
    std::vector<float> values;
  };
  std::vector<Output> outputs;
};

void WriteResponse(const TensorAnswer& answer, std::string* out);
std::string WriteJsonResponse(const TensorAnswer& answer);

}  // namespace elasticctr::serve::paddle
