// The JSON that Paddle Serving's clients send, told apart by its keys:
//
//   GeneralModelService:
//     {"tensor": [{"int64_data": […], "shape": [2, 1], "name": "C1"}, …], "fetch_var_names": ["prob"]}
//   pipeline services:
//     {"key": ["C1", "dense_input"], "value": ["[[5],[7]]", "[[0.1,…],[…]]"]}
//   web services:
//     {"feed": [{"C1": [[5], [7]], "dense_input": [[0.1, …], […]]}], "fetch": ["prob"]}
//
// A list of lists has a row per sample; a flat list of numbers is one sample. `NAME.lod` holds offsets of NAME's rows.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/paddle/tensors.h"
#include "util/json_reader.h"

namespace elasticctr::serve::paddle {

struct JsonCall {
  enum class Shape : uint8_t { kTensors, kPairs, kFeeds };
  Shape shape = Shape::kTensors;
  TensorRequest request;
  std::vector<std::pair<std::string_view, std::string>> fields;  // other scalars of the body, as text
  std::deque<JsonReader> readers;                                // the readers that views point into
  std::deque<std::string> contents;

  const std::string* field(std::string_view name) const;
};

// Throws DataError. REQUIRES: `body` outlives the call.
void ReadJson(std::string_view body, const Limits& limits, JsonCall* call);

}  // namespace elasticctr::serve::paddle
