// The part of an ONNX file (onnx.proto) that is needed to find out what a graph does with its inputs and to build
// another one from pieces of it. Nothing is copied: views point into the bytes read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace elasticctr::serve::onnx {

inline constexpr int kFloat = 1, kInt64 = 7;

struct Node {
  std::string_view op, domain;
  std::vector<std::string_view> inputs, outputs;                      // "": an optional one that is absent
  std::unordered_map<std::string_view, std::string_view> attributes;  // AttributeProto by name
  bool has_graph = false;                                             // inside an attribute: If, Loop, Scan
  std::string_view bytes;                                             // NodeProto

  // The integer value of an attribute; `otherwise` if there is none.
  int64_t Int(std::string_view name, int64_t otherwise) const;
  float Float(std::string_view name, float otherwise) const;
};

// Floats or integers of a TensorProto or a Constant.
struct Tensor {
  std::vector<int64_t> dims;
  std::vector<float> floats;
  std::vector<int64_t> ints;
  bool is_float = false;
};

struct Graph {
  std::vector<Node> nodes;  // each after those whose outputs it reads
  std::unordered_map<std::string_view, std::string_view> initializers, inputs, outputs;  // message by name
  std::string_view name;
  std::string rest;  // ModelProto without its graph: versions, operator sets, metadata
};

// Throws DataError for bytes that are not an ONNX file, FailedPrecondition for one with local functions or external
// weights. REQUIRES: `bytes` outlives the graph.
Graph ReadGraph(std::string_view bytes);

// nullopt: neither floats nor 64-bit integers, or their number does not match the dimensions.
std::optional<Tensor> ReadTensor(std::string_view tensor_proto);
// The value of a Constant node.
std::optional<Tensor> ReadConstant(const Node& node);

// A float input of shape [any, width], as bytes of a ValueInfoProto. `width` 0: any.
std::string FloatInput(std::string_view name, uint32_t width);
// Y = X W + C, as bytes of a NodeProto.
std::string GemmNode(std::string_view x, std::string_view w, std::string_view c, std::string_view y);

// A ModelProto of `rest` and a graph of these messages.
std::string WriteModel(const Graph& of, const std::vector<std::string_view>& nodes,
                       const std::vector<std::string_view>& initializers, const std::vector<std::string_view>& inputs,
                       const std::vector<std::string_view>& outputs);

}  // namespace elasticctr::serve::onnx
