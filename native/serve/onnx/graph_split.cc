#include "serve/onnx/graph_split.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "serve/onnx/file.h"
#include "util/status.h"

namespace elasticctr::serve {
namespace {

using onnx::Graph;
using onnx::Node;
using onnx::Tensor;

// Narrower sums do not justify a matrix product.
constexpr uint32_t kMinProduct = 8;
// The least gain required elsewhere if the cut graph still reads all columns.
constexpr uint32_t kMinWidth = 64;

// Columns of the input, in any order, squared or not, times `scale`.
struct Columns {
  std::vector<uint32_t> of;
  bool is_squared = false;
  float scale = 1;
};

class Cutter {
 public:
  Cutter(std::string_view bytes, uint32_t pooled_width, uint32_t dense_width)
      : graph_(onnx::ReadGraph(bytes)), column_count_(pooled_width + dense_width) {
    AddInput("pooled", 0, pooled_width);
    AddInput("dense", pooled_width, dense_width);
    for (const Node& node : graph_.nodes) {
      for (const std::string_view output : node.outputs) producers_[output] = &node;
      if (node.outputs.size() == 1 && (node.domain.empty() || node.domain == "ai.onnx")) Follow(node);
    }
  }

  GraphSplit Cut() {
    if (!graph_.outputs.contains("scores")) throw Error(Code::kFailedPrecondition, "the graph has no output 'scores'");
    Need("scores");
    GraphSplit split;
    uint32_t width = 0;
    for (const std::string_view name : needed_sums_) {
      ColumnSum sum = std::move(sums_.at(name));
      width += sum.width;
      if (!sum.is_of_squares && sum.width >= kMinProduct) {
        sum.weights_input = "elasticctr.weights." + std::to_string(split.sums.size());
        sum.start_input = "elasticctr.start." + std::to_string(split.sums.size());
      }
      split.sums.push_back(std::move(sum));
    }
    if (split.sums.empty()) {
      throw Error(Code::kFailedPrecondition, "no layer of the graph reads pooled rows and dense floats alone");
    }
    const bool reads_columns = needed_.contains("pooled") || needed_.contains("dense");
    if (reads_columns && width < kMinWidth) {
      throw Error(Code::kFailedPrecondition, "most of the graph reads pooled rows other than through a first layer");
    }
    Write(&split);
    return split;
  }

 private:
  void AddInput(std::string_view name, uint32_t first, uint32_t width) {
    if (width == 0 || !graph_.inputs.contains(name)) return;
    std::vector<uint32_t> of(width);
    std::iota(of.begin(), of.end(), first);
    columns_[name] = {std::move(of)};
  }

  const Columns* ColumnsOf(std::string_view name) const {
    const auto found = columns_.find(name);
    return found == columns_.end() ? nullptr : &found->second;
  }
  const ColumnSum* SumOf(std::string_view name) const {
    const auto found = sums_.find(name);
    return found == sums_.end() ? nullptr : &found->second;
  }
  std::optional<Tensor> Constant(std::string_view name) const {
    if (const auto found = constants_.find(name); found != constants_.end()) return found->second;
    const auto found = graph_.initializers.find(name);
    return found == graph_.initializers.end() ? std::nullopt : onnx::ReadTensor(found->second);
  }
  std::optional<float> Scalar(std::string_view name) const {
    const std::optional<Tensor> tensor = Constant(name);
    if (!tensor || !tensor->is_float || tensor->floats.size() != 1 || tensor->dims.size() > 2) return std::nullopt;
    return tensor->floats[0];
  }
  std::optional<std::vector<int64_t>> Ints(const Node& node, size_t input) const {
    if (input >= node.inputs.size()) return std::nullopt;
    std::optional<Tensor> tensor = Constant(node.inputs[input]);
    if (!tensor || tensor->is_float) return std::nullopt;
    return std::move(tensor->ints);
  }

  // Determines the node's output if possible. Otherwise the node stays in the graph unchanged.
  void Follow(const Node& node) {
    const size_t count = node.inputs.size();
    if (node.op == "Constant") {
      if (auto value = onnx::ReadConstant(node)) constants_[node.outputs[0]] = std::move(*value);
    } else if (node.op == "Concat") {
      FollowConcat(node);
    } else if (node.op == "Slice" && count >= 3) {
      FollowSlice(node);
    } else if (node.op == "Identity" && count == 1 && ColumnsOf(node.inputs[0]) != nullptr) {
      columns_[node.outputs[0]] = Columns(*ColumnsOf(node.inputs[0]));
    } else if ((node.op == "Gemm" || node.op == "MatMul") && count >= 2) {
      FollowProduct(node);
    } else if (node.op == "ReduceSum" && count >= 1) {
      FollowReduceSum(node);
    } else if (node.op == "Mul" && count == 2) {
      FollowMul(node);
    } else if ((node.op == "Add" || node.op == "Sub") && count == 2) {
      FollowAdd(node, node.op == "Add" ? 1.0f : -1.0f);
    } else if (count >= 1) {
      FollowConstant(node);
    }
  }

  // Only nodes that keep the order of a constant's numbers: starts and ends of slices use these.
  void FollowConstant(const Node& node) {
    const bool is_cast = node.op == "Cast";
    if (!is_cast && node.op != "CastLike" && node.op != "Identity" && node.op != "Reshape") return;
    std::optional<Tensor> tensor = Constant(node.inputs[0]);
    if (!tensor || (is_cast && node.Int("to", 0) != (tensor->is_float ? onnx::kFloat : onnx::kInt64))) return;
    if (node.op == "CastLike" && !(tensor->is_float && ColumnsOf(node.inputs.back()) != nullptr)) return;
    if (node.op == "Reshape") {
      tensor->dims = {static_cast<int64_t>(tensor->is_float ? tensor->floats.size() : tensor->ints.size())};
    }
    constants_[node.outputs[0]] = std::move(*tensor);
  }

  void FollowConcat(const Node& node) {
    const int64_t axis = node.Int("axis", 0);
    if (axis != 1 && axis != -1) return;
    Columns all;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Columns* one = ColumnsOf(node.inputs[i]);
      if (one == nullptr) return;
      if (i == 0) {
        all = *one;
      } else if (all.is_squared != one->is_squared || all.scale != one->scale) {
        return;
      } else {
        all.of.insert(all.of.end(), one->of.begin(), one->of.end());
      }
    }
    columns_[node.outputs[0]] = std::move(all);
  }

  void FollowSlice(const Node& node) {
    const Columns* from = ColumnsOf(node.inputs[0]);
    const auto starts = Ints(node, 1), ends = Ints(node, 2), axes = Ints(node, 3), steps = Ints(node, 4);
    const bool is_one = starts && ends && axes && starts->size() == 1 && ends->size() == 1 && axes->size() == 1;
    if (from == nullptr || !is_one || (node.inputs.size() > 4 && (!steps || *steps != std::vector<int64_t>{1}))) return;
    const auto size = static_cast<int64_t>(from->of.size());
    const auto place = [size](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size); };
    if ((*axes)[0] == 0) {
      if ((*starts)[0] != 0 || (*ends)[0] < INT32_MAX) return;  // some samples only
      columns_[node.outputs[0]] = Columns(*from);
    } else if ((*axes)[0] == 1 || (*axes)[0] == -1) {
      Columns part = *from;
      const int64_t first = place((*starts)[0]), last = std::max(first, place((*ends)[0]));
      part.of.assign(from->of.begin() + first, from->of.begin() + last);
      columns_[node.outputs[0]] = std::move(part);
    }
  }

  ColumnSum MakeSum(std::string_view name, uint32_t width, bool is_of_squares) const {
    ColumnSum sum;
    sum.tensor = name;
    sum.width = width;
    sum.is_of_squares = is_of_squares;
    sum.weights.resize(size_t{column_count_} * width);
    sum.start.resize(width);
    return sum;
  }

  void FollowProduct(const Node& node) {
    const Columns* x = ColumnsOf(node.inputs[0]);
    if (x == nullptr) return;
    const std::optional<Tensor> w = Constant(node.inputs[1]);
    if (!w || !w->is_float || w->dims.size() != 2 || node.Int("transA", 0) != 0) return;
    const bool is_gemm = node.op == "Gemm", is_transposed = is_gemm && node.Int("transB", 0) != 0;
    const auto rows = static_cast<size_t>(w->dims[is_transposed]), width = static_cast<size_t>(w->dims[!is_transposed]);
    if (rows != x->of.size() || width == 0 || width > UINT32_MAX) return;
    const float scale = x->scale * (is_gemm ? node.Float("alpha", 1) : 1);
    ColumnSum sum = MakeSum(node.outputs[0], static_cast<uint32_t>(width), x->is_squared);
    for (size_t k = 0; k < rows; ++k) {
      float* to = sum.weights.data() + x->of[k] * width;
      for (size_t j = 0; j < width; ++j) to[j] += scale * w->floats[is_transposed ? j * rows + k : k * width + j];
    }
    if (is_gemm && node.inputs.size() > 2 && !node.inputs[2].empty() &&
        !AddConstant(node.inputs[2], node.Float("beta", 1), &sum)) {
      return;
    }
    sums_[node.outputs[0]] = std::move(sum);
  }

  // Adds a constant of one float, or one per float of the sum; false: it is not a constant.
  bool AddConstant(std::string_view name, float scale, ColumnSum* sum) const {
    const std::optional<Tensor> c = Constant(name);
    if (!c || !c->is_float || c->dims.size() > 2) return false;
    const size_t size = c->floats.size();
    if ((size != 1 && size != sum->width) || (!c->dims.empty() && static_cast<size_t>(c->dims.back()) != size)) {
      return false;
    }
    for (size_t j = 0; j < sum->width; ++j) sum->start[j] += scale * c->floats[size == 1 ? 0 : j];
    return true;
  }

  void FollowReduceSum(const Node& node) {
    const Columns* x = ColumnsOf(node.inputs[0]);
    const auto axes = Ints(node, 1);
    if (!axes || axes->size() != 1 || ((*axes)[0] != 1 && (*axes)[0] != -1) || node.Int("keepdims", 1) != 1) return;
    if (x == nullptr) return ReduceConstant(node);
    ColumnSum sum = MakeSum(node.outputs[0], 1, x->is_squared);
    for (const uint32_t column : x->of) sum.weights[column] += x->scale;
    sums_[node.outputs[0]] = std::move(sum);
  }

  void ReduceConstant(const Node& node) {
    std::optional<Tensor> tensor = Constant(node.inputs[0]);
    if (!tensor || !tensor->is_float || tensor->dims.size() != 2) return;
    Tensor reduced;
    reduced.is_float = true;
    reduced.dims = {tensor->dims[0], 1};
    const auto width = tensor->dims[1];
    for (auto row = tensor->floats.begin(); row != tensor->floats.end(); row += width) {
      reduced.floats.push_back(std::accumulate(row, row + width, 0.0f));
    }
    constants_[node.outputs[0]] = std::move(reduced);
  }

  void FollowMul(const Node& node) {
    for (const size_t side : {0, 1}) {
      const std::string_view name = node.inputs[side], other = node.inputs[1 - side];
      if (const Columns* x = ColumnsOf(name)) {
        Columns product = *x;
        if (const auto scale = Scalar(other)) {
          product.scale *= *scale;
        } else if (name == other && !x->is_squared) {
          product.is_squared = true;
          product.scale *= x->scale;
        } else {
          return;
        }
        columns_[node.outputs[0]] = std::move(product);
        return;
      }
    }
    std::optional<Tensor> tensor = node.inputs[0] == node.inputs[1] ? Constant(node.inputs[0]) : std::nullopt;
    if (!tensor || !tensor->is_float) return;
    for (float& value : tensor->floats) value *= value;
    constants_[node.outputs[0]] = std::move(*tensor);
  }

  // Adds sums of equal width; a constant is added to the start.
  void FollowAdd(const Node& node, float sign) {
    const ColumnSum *a = SumOf(node.inputs[0]), *b = SumOf(node.inputs[1]);
    if (a != nullptr && b != nullptr && a->width == b->width && a->is_of_squares == b->is_of_squares) {
      ColumnSum sum = *a;
      for (size_t i = 0; i < sum.weights.size(); ++i) sum.weights[i] += sign * b->weights[i];
      for (size_t i = 0; i < sum.start.size(); ++i) sum.start[i] += sign * b->start[i];
      Keep(node, std::move(sum));
    } else if (a != nullptr && b == nullptr) {
      ColumnSum sum = *a;
      if (AddConstant(node.inputs[1], sign, &sum)) Keep(node, std::move(sum));
    } else if (b != nullptr && a == nullptr && sign > 0) {
      ColumnSum sum = *b;
      if (AddConstant(node.inputs[0], sign, &sum)) Keep(node, std::move(sum));
    }
  }

  void Keep(const Node& node, ColumnSum sum) {
    sum.tensor = node.outputs[0];
    sums_[node.outputs[0]] = std::move(sum);
  }

  // Marks everything a tensor depends on, up to sums.
  void Need(std::string_view output) {
    std::vector<std::string_view> open = {output};
    while (!open.empty()) {
      const std::string_view name = open.back();
      open.pop_back();
      if (name.empty() || !needed_.insert(name).second) continue;
      if (SumOf(name) != nullptr) {
        needed_sums_.push_back(name);
        continue;
      }
      const auto producer = producers_.find(name);
      if (producer == producers_.end()) continue;
      if (producer->second->has_graph) {
        throw Error(Code::kFailedPrecondition,
                    "the graph has a node " + std::string(producer->second->op) + " with a graph inside");
      }
      needed_nodes_.insert(producer->second);
      open.insert(open.end(), producer->second->inputs.begin(), producer->second->inputs.end());
    }
  }

  void Write(GraphSplit* split) const {
    std::vector<std::string> made;  // views below point into its strings
    made.reserve(3 * split->sums.size() + 1);
    std::vector<std::string_view> nodes, initializers, inputs;
    bool has_product = false;
    for (const ColumnSum& sum : split->sums) {
      if (sum.weights_input.empty()) {
        inputs.push_back(made.emplace_back(onnx::FloatInput(sum.tensor, sum.width)));
        continue;
      }
      has_product = true;
      inputs.push_back(made.emplace_back(onnx::FloatInput(sum.weights_input, sum.width)));
      inputs.push_back(made.emplace_back(onnx::FloatInput(sum.start_input, sum.width)));
      nodes.push_back(
          made.emplace_back(onnx::GemmNode(GraphSplit::kColumnsInput, sum.weights_input, sum.start_input, sum.tensor)));
    }
    if (has_product) inputs.push_back(made.emplace_back(onnx::FloatInput(GraphSplit::kColumnsInput, 0)));
    for (const Node& node : graph_.nodes) {
      if (needed_nodes_.contains(&node)) nodes.push_back(node.bytes);
    }
    for (const auto& [name, message] : graph_.initializers) {
      if (needed_.contains(name)) initializers.push_back(message);
    }
    for (const auto& [name, message] : graph_.inputs) {
      if (!needed_.contains(name)) continue;
      inputs.push_back(message);
      if (!graph_.initializers.contains(name)) split->inputs.emplace_back(name);
    }
    split->onnx = onnx::WriteModel(graph_, nodes, initializers, inputs, {graph_.outputs.at("scores")});
  }

  const Graph graph_;
  const uint32_t column_count_;
  std::unordered_map<std::string_view, const Node*> producers_;
  std::unordered_map<std::string_view, Columns> columns_;
  std::unordered_map<std::string_view, ColumnSum> sums_;
  std::unordered_map<std::string_view, Tensor> constants_;
  std::unordered_set<std::string_view> needed_;
  std::unordered_set<const Node*> needed_nodes_;
  std::vector<std::string_view> needed_sums_;
};

}  // namespace

GraphSplit SplitGraph(std::string_view onnx, uint32_t pooled_width, uint32_t dense_width) {
  return Cutter(onnx, pooled_width, dense_width).Cut();
}

}  // namespace elasticctr::serve
