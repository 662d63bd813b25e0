#include "serve/onnx/file.h"

#include <cstring>

#include "util/protobuf.h"
#include "util/status.h"

namespace elasticctr::serve::onnx {
namespace {

using protobuf::Reader;
using protobuf::Writer;

constexpr uint32_t kModelGraph = 7, kModelFunctions = 25;
constexpr uint32_t kGraphNode = 1, kGraphName = 2, kGraphInitializer = 5, kGraphInput = 11, kGraphOutput = 12,
                   kGraphSparseInitializer = 15;
constexpr uint32_t kNodeInput = 1, kNodeOutput = 2, kNodeOp = 4, kNodeAttribute = 5, kNodeDomain = 7;
constexpr uint32_t kAttributeName = 1, kAttributeFloat = 2, kAttributeInt = 3, kAttributeTensor = 5,
                   kAttributeGraph = 6, kAttributeFloats = 7, kAttributeInts = 8, kAttributeGraphs = 11;
constexpr uint32_t kTensorDims = 1, kTensorType = 2, kTensorFloats = 4, kTensorInts = 7, kTensorName = 8,
                   kTensorRaw = 9, kTensorExternal = 13;

std::string_view NameOf(std::string_view message, uint32_t field) {
  Reader reader(message, "ONNX message");
  while (reader.Next()) {
    if (reader.field() == field) return reader.AsBytes();
  }
  return {};
}

Node ReadNode(std::string_view bytes) {
  Node node;
  node.bytes = bytes;
  Reader reader(bytes, "NodeProto");
  while (reader.Next()) {
    switch (reader.field()) {
      case kNodeInput: node.inputs.push_back(reader.AsBytes()); break;
      case kNodeOutput: node.outputs.push_back(reader.AsBytes()); break;
      case kNodeOp: node.op = reader.AsBytes(); break;
      case kNodeDomain: node.domain = reader.AsBytes(); break;
      case kNodeAttribute: {
        const std::string_view attribute = reader.AsBytes();
        node.attributes[NameOf(attribute, kAttributeName)] = attribute;
        Reader inside(attribute, "AttributeProto");
        while (inside.Next()) {
          node.has_graph |= inside.field() == kAttributeGraph || inside.field() == kAttributeGraphs;
        }
        break;
      }
      default: break;
    }
  }
  return node;
}

bool IsElsewhere(std::string_view tensor) {
  Reader reader(tensor, "TensorProto");
  while (reader.Next()) {
    if (reader.field() == kTensorExternal) return true;
  }
  return false;
}

template <typename T>
bool TakeRaw(std::string_view raw, std::vector<T>* out) {
  if (raw.size() % sizeof(T) != 0) return false;
  out->resize(raw.size() / sizeof(T));
  if (!raw.empty()) std::memcpy(out->data(), raw.data(), raw.size());
  return true;
}

void WriteAll(Writer* writer, uint32_t field, const std::vector<std::string_view>& messages) {
  for (const std::string_view message : messages) writer->Bytes(field, message);
}

}  // namespace

int64_t Node::Int(std::string_view name, int64_t otherwise) const {
  const auto found = attributes.find(name);
  if (found == attributes.end()) return otherwise;
  Reader reader(found->second, "AttributeProto");
  while (reader.Next()) {
    if (reader.field() == kAttributeInt) return reader.AsInt64();
  }
  return otherwise;
}

float Node::Float(std::string_view name, float otherwise) const {
  const auto found = attributes.find(name);
  if (found == attributes.end()) return otherwise;
  Reader reader(found->second, "AttributeProto");
  while (reader.Next()) {
    if (reader.field() == kAttributeFloat) return reader.AsFloat();
  }
  return otherwise;
}

Graph ReadGraph(std::string_view bytes) {
  Graph graph;
  std::string_view body;
  Reader model(bytes, "ModelProto");
  Writer rest(&graph.rest);
  while (model.Next()) {
    if (model.field() == kModelGraph) {
      body = model.AsBytes();
    } else if (model.field() == kModelFunctions) {
      throw Error(Code::kFailedPrecondition, "the graph has functions of its own");
    } else if (model.type() == protobuf::WireType::kVarint) {
      rest.Uint64(model.field(), model.AsUint64());
    } else {
      rest.Bytes(model.field(), model.AsBytes());
    }
  }
  Reader reader(body, "GraphProto");
  while (reader.Next()) {
    switch (reader.field()) {
      case kGraphNode: graph.nodes.push_back(ReadNode(reader.AsBytes())); break;
      case kGraphName: graph.name = reader.AsBytes(); break;
      case kGraphInput: graph.inputs[NameOf(reader.AsBytes(), 1)] = reader.AsBytes(); break;
      case kGraphOutput: graph.outputs[NameOf(reader.AsBytes(), 1)] = reader.AsBytes(); break;
      case kGraphInitializer:
        if (IsElsewhere(reader.AsBytes())) {
          throw Error(Code::kFailedPrecondition, "the graph has weights in other files");
        }
        graph.initializers[NameOf(reader.AsBytes(), kTensorName)] = reader.AsBytes();
        break;
      case kGraphSparseInitializer: throw Error(Code::kFailedPrecondition, "the graph has sparse weights");
      default: break;
    }
  }
  return graph;
}

std::optional<Tensor> ReadTensor(std::string_view tensor_proto) {
  Tensor tensor;
  int32_t type = 0;
  std::string_view raw;
  Reader reader(tensor_proto, "TensorProto");
  while (reader.Next()) {
    switch (reader.field()) {
      case kTensorDims: reader.AppendInt64(&tensor.dims); break;
      case kTensorType: type = reader.AsInt32(); break;
      case kTensorFloats: reader.AppendFloat(&tensor.floats); break;
      case kTensorInts: reader.AppendInt64(&tensor.ints); break;
      case kTensorRaw: raw = reader.AsBytes(); break;
      case kTensorExternal: return std::nullopt;
      default: break;
    }
  }
  if (type != kFloat && type != kInt64) return std::nullopt;
  tensor.is_float = type == kFloat;
  if (!raw.empty() && !(tensor.is_float ? TakeRaw(raw, &tensor.floats) : TakeRaw(raw, &tensor.ints))) {
    return std::nullopt;
  }
  const size_t there = tensor.is_float ? tensor.floats.size() : tensor.ints.size();
  size_t count = 1;
  for (const int64_t dim : tensor.dims) {
    if (dim < 0 || (dim > 0 && count > (SIZE_MAX >> 8) / static_cast<size_t>(dim))) return std::nullopt;
    count *= static_cast<size_t>(dim);
  }
  if (count != there) return std::nullopt;
  return tensor;
}

std::optional<Tensor> ReadConstant(const Node& node) {
  for (const auto& [name, attribute] : node.attributes) {
    if (name != "value" && name != "value_int" && name != "value_ints" && name != "value_float" &&
        name != "value_floats") {
      continue;
    }
    Tensor tensor;
    Reader reader(attribute, "AttributeProto");
    while (reader.Next()) {
      switch (reader.field()) {
        case kAttributeTensor:
          if (name == "value") return ReadTensor(reader.AsBytes());
          break;
        case kAttributeFloat:
          if (name == "value_float") tensor.floats.push_back(reader.AsFloat());
          break;
        case kAttributeInt:
          if (name == "value_int") tensor.ints.push_back(reader.AsInt64());
          break;
        case kAttributeFloats: reader.AppendFloat(&tensor.floats); break;
        case kAttributeInts: reader.AppendInt64(&tensor.ints); break;
        default: break;
      }
    }
    tensor.is_float = name == "value_float" || name == "value_floats";
    const size_t count = tensor.is_float ? tensor.floats.size() : tensor.ints.size();
    if (name == "value_ints" || name == "value_floats") tensor.dims = {static_cast<int64_t>(count)};
    if (name == "value" || (tensor.dims.empty() && count != 1)) return std::nullopt;
    return tensor;
  }
  return std::nullopt;
}

std::string FloatInput(std::string_view name, uint32_t width) {
  std::string out;
  Writer writer(&out);
  writer.Bytes(1, name);
  const size_t type = writer.Begin(2), tensor = writer.Begin(1);
  writer.Uint64(1, kFloat);
  const size_t shape = writer.Begin(2);
  writer.Bytes(1, std::string_view());
  const size_t dim = writer.Begin(1);
  if (width > 0) writer.Uint64(1, width);
  writer.End(dim);
  writer.End(shape);
  writer.End(tensor);
  writer.End(type);
  return out;
}

std::string GemmNode(std::string_view x, std::string_view w, std::string_view c, std::string_view y) {
  std::string out;
  Writer writer(&out);
  for (const std::string_view input : {x, w, c}) writer.Bytes(kNodeInput, input);
  writer.Bytes(kNodeOutput, y);
  writer.Bytes(kNodeOp, "Gemm");
  return out;
}

std::string WriteModel(const Graph& of, const std::vector<std::string_view>& nodes,
                       const std::vector<std::string_view>& initializers, const std::vector<std::string_view>& inputs,
                       const std::vector<std::string_view>& outputs) {
  std::string out = of.rest;
  Writer writer(&out);
  const size_t graph = writer.Begin(kModelGraph);
  WriteAll(&writer, kGraphNode, nodes);
  writer.Bytes(kGraphName, of.name);
  WriteAll(&writer, kGraphInitializer, initializers);
  WriteAll(&writer, kGraphInput, inputs);
  WriteAll(&writer, kGraphOutput, outputs);
  writer.End(graph);
  return out;
}

}  // namespace elasticctr::serve::onnx
