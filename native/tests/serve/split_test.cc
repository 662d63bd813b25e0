// A graph is cut after its first layer: the sums found and their weights, the rest of the graph, errors for damaged
// files, and equal scores of the cut and the whole graph. tests/unit/serve/test_shared_layer.py does the same with the
// graphs of real models in ONNX Runtime.
#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "serve/onnx/column_products.h"
#include "serve/onnx/file.h"
#include "serve/onnx/graph_split.h"
#include "serve/onnx/shared_layer.h"
#include "serve/version/version.h"
#include "tests/check.h"
#include "util/protobuf.h"
#include "util/status.h"

using namespace elasticctr;
using namespace elasticctr::serve;

namespace {

std::string MakeNode(std::string_view op, const std::vector<std::string>& inputs, const std::string& output,
                     const std::vector<std::pair<std::string, int64_t>>& attributes = {}) {
  std::string out;
  protobuf::Writer writer(&out);
  for (const std::string& input : inputs) writer.Bytes(1, input);
  writer.Bytes(2, output);
  writer.Bytes(4, op);
  for (const auto& [name, value] : attributes) {
    const size_t attribute = writer.Begin(5);
    writer.Bytes(1, name);
    writer.Int64(3, value);
    writer.End(attribute);
  }
  return out;
}

std::string MakeFloats(std::string_view name, const std::vector<int64_t>& dims, const std::vector<float>& values) {
  std::string out;
  protobuf::Writer writer(&out);
  for (const int64_t dim : dims) writer.Int64(1, dim);
  writer.Int64(2, onnx::kFloat);
  writer.PackedFloat(4, values.data(), values.size());
  writer.Bytes(8, name);
  return out;
}

std::string MakeInts(std::string_view name, const std::vector<int64_t>& values) {
  std::string out;
  protobuf::Writer writer(&out);
  writer.Int64(1, static_cast<int64_t>(values.size()));
  writer.Int64(2, onnx::kInt64);
  writer.Bytes(8, name);
  writer.Bytes(9, values.data(), values.size() * sizeof(int64_t));
  return out;
}

// pooled [n, 3] and dense [n, 2]; a tower of 8 over the last 4 columns, with a bias, and a wide sum over the first two.
std::string MakeModel() {
  std::vector<float> weights(32), bias(8);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i + 1);
  for (size_t i = 0; i < bias.size(); ++i) bias[i] = 0.5f * static_cast<float>(i);
  const std::vector<std::string> nodes = {
      MakeNode("Concat", {"pooled", "dense"}, "all", {{"axis", 1}}),
      MakeNode("Slice", {"all", "one", "end", "one"}, "deep"),
      MakeNode("Gemm", {"deep", "weights", "bias"}, "layer", {{"transB", 1}}),
      MakeNode("Relu", {"layer"}, "hidden"),
      MakeNode("MatMul", {"hidden", "out"}, "tower"),
      MakeNode("Slice", {"all", "zero", "two", "one"}, "linear"),
      MakeNode("ReduceSum", {"linear", "one"}, "wide"),
      MakeNode("Add", {"wide", "tower"}, "logits"),
      MakeNode("Sigmoid", {"logits"}, "scores"),
  };
  const std::vector<std::string> initializers = {
      MakeFloats("weights", {8, 4}, weights),
      MakeFloats("bias", {8}, bias),
      MakeFloats("out", {8, 1}, bias),
      MakeInts("zero", {0}),
      MakeInts("one", {1}),
      MakeInts("two", {2}),
      MakeInts("end", {INT64_MAX}),
  };
  const std::vector<std::string> inputs = {onnx::FloatInput("pooled", 3), onnx::FloatInput("dense", 2)};
  const std::string scores = onnx::FloatInput("scores", 1), logits = onnx::FloatInput("logits", 1);
  onnx::Graph graph;
  graph.name = "made";
  protobuf::Writer(&graph.rest).Int64(1, 9);
  const auto views = [](const std::vector<std::string>& of) {
    return std::vector<std::string_view>(of.begin(), of.end());
  };
  return onnx::WriteModel(graph, views(nodes), views(initializers), views(inputs), {logits, scores});
}

void TestSumsAndTheirWeights() {
  const std::string model = MakeModel();
  const GraphSplit split = SplitGraph(model, 3, 2);
  CHECK(split.sums.size() == 2 && split.inputs.empty());
  const bool is_tower_first = split.sums[0].tensor == "layer";
  const ColumnSum &tower = split.sums[!is_tower_first], &wide = split.sums[is_tower_first];
  CHECK(tower.tensor == "layer" && tower.width == 8 && !tower.is_of_squares && !tower.weights_input.empty());
  CHECK(tower.weights.size() == 40 && tower.start[3] == 1.5f);
  for (size_t column = 0; column < 5; ++column) {
    for (size_t j = 0; j < 8; ++j) {
      const float expected = column == 0 ? 0 : static_cast<float>(j * 4 + column);  // weights[j][column - 1]
      CHECK(tower.weights[column * 8 + j] == expected);
    }
  }
  CHECK(wide.tensor == "wide" && wide.width == 1 && wide.weights_input.empty());
  CHECK((wide.weights == std::vector<float>{1, 1, 0, 0, 0}) && wide.start[0] == 0);
}

void TestWhatIsLeft() {
  const std::string model = MakeModel();
  const GraphSplit split = SplitGraph(model, 3, 2);
  const onnx::Graph left = onnx::ReadGraph(split.onnx);
  CHECK(left.name == "made" && !left.rest.empty());
  std::vector<std::string> ops;
  for (const onnx::Node& node : left.nodes) ops.emplace_back(node.op);
  CHECK((ops == std::vector<std::string>{"Gemm", "Relu", "MatMul", "Add", "Sigmoid"}));
  CHECK(left.inputs.size() == 4 && left.inputs.contains(GraphSplit::kColumnsInput) && left.inputs.contains("wide"));
  CHECK(left.initializers.size() == 1 && left.initializers.contains("out"));
  CHECK(left.outputs.size() == 1 && left.outputs.contains("scores"));
}

// Any bytes are split or give an error, and take no more memory than their size justifies.
void TestDamagedFiles() {
  const std::string model = MakeModel();
  std::mt19937 random(7);
  size_t refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = model;
    for (uint32_t k = random() % 4 + 1; k > 0; --k) bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 8 == 0) bytes.resize(random() % bytes.size());
    try {
      const GraphSplit split = SplitGraph(bytes, 3, 2);
      for (const ColumnSum& sum : split.sums) CHECK(sum.weights.size() == 5 * sum.width);
      onnx::ReadGraph(split.onnx);
    } catch (const Error& e) {
      CHECK(e.code() == Code::kData || e.code() == Code::kFailedPrecondition);
      ++refused;
    }
  }
  CHECK(refused > 1000 && refused < 20'000);
}

// Compared with float64, over widths and row counts around block sizes.
void TestProducts() {
  std::mt19937 random(3);
  const auto draw = [&] { return static_cast<float>(random() % 2001) / 1000 - 1; };
  for (const size_t width : {1, 3, 31, 32, 33, 64, 70}) {
    for (const size_t rows : {1, 3, 4, 5, 9}) {
      for (const bool of_squares : {false, true}) {
        const size_t columns = 37;
        std::vector<float> x(rows * columns), weights(columns * width), out(rows * width);
        for (auto* made : {&x, &weights, &out}) std::generate(made->begin(), made->end(), draw);
        std::vector<uint32_t> chosen;
        for (uint32_t c = 0; c < columns; c += 1 + c % 3) chosen.push_back(c);
        std::vector<double> expected(out.begin(), out.end()), run(width, 0.25);
        const auto value = [&](size_t at) { return of_squares ? double{x[at]} * x[at] : double{x[at]}; };
        for (size_t r = 0; r < rows; ++r) {
          for (const uint32_t c : chosen) {
            for (size_t j = 0; j < width; ++j) {
              expected[r * width + j] += value(r * columns + c) * weights[c * width + j];
            }
          }
        }
        AddColumns({x.data(), rows, columns}, chosen, weights.data(), width, of_squares, out.data());
        for (size_t i = 0; i < out.size(); ++i) CHECK(std::abs(out[i] - expected[i]) < 1e-5);
        std::vector<float> sum(width, 0.25f);
        AddRun(x.data(), columns, weights.data(), width, of_squares, sum.data());
        for (size_t j = 0; j < width; ++j) {
          for (size_t c = 0; c < columns; ++c) run[j] += value(c) * weights[c * width + j];
          CHECK(std::abs(sum[j] - run[j]) < 1e-5);
        }
      }
    }
  }
}

// The graph of MakeModel computed by hand, whole or cut.
class HandGraph final : public DenseGraph {
 public:
  explicit HandGraph(const GraphSplit* cut) : cut_(cut), split_(SplitGraph(MakeModel(), 3, 2)) {}
  void Run(std::span<const Input> inputs, size_t n, size_t, float* out) const override {
    const auto find = [&](const std::string& name) -> const Input& {
      return *std::find_if(inputs.begin(), inputs.end(), [&](const Input& one) { return one.name == name; });
    };
    const auto data = [&](const std::string& name) { return static_cast<const float*>(find(name).data); };
    std::fill_n(out, n, 0.0f);
    for (size_t i = 0; i < n; ++i) {
      for (const ColumnSum& sum : split_.sums) {
        std::vector<float> layer(sum.start);
        if (cut_ == nullptr) {
          const float *pooled = data("pooled") + 3 * i, *dense = data("dense") + 2 * i;
          for (size_t c = 0; c < 5; ++c) {
            const float x = c < 3 ? pooled[c] : dense[c - 3];
            for (size_t j = 0; j < sum.width; ++j) layer[j] += x * sum.weights[c * sum.width + j];
          }
        } else if (sum.weights_input.empty()) {
          layer[0] = data(sum.tensor)[i];
        } else {
          const Input &x = find(GraphSplit::kColumnsInput), &start = find(sum.start_input);
          const auto width = static_cast<size_t>(x.shape[1]);
          CHECK(x.shape[0] == static_cast<int64_t>(n) && (start.shape[0] == 1 || start.shape[0] == x.shape[0]));
          for (size_t j = 0; j < sum.width; ++j) {
            layer[j] = data(sum.start_input)[(start.shape[0] == 1 ? 0 : i) * sum.width + j];
            for (size_t k = 0; k < width; ++k) {
              layer[j] += data(GraphSplit::kColumnsInput)[i * width + k] * data(sum.weights_input)[k * sum.width + j];
            }
          }
        }
        for (const float value : layer) out[i] += std::tanh(value / 100);
      }
    }
  }

 private:
  const GraphSplit* const cut_;
  const GraphSplit split_;
};

// The row of feasign f is f / 1000.
class HandRows final : public RowSource {
 public:
  void LookUp(Table* tables, size_t, uint64_t, Trouble*) const override {
    for (size_t i = 0; i < tables[0].count; ++i) {
      tables[0].rows[i] = static_cast<float>(tables[0].feasigns[i]) / 1000;
      tables[0].found[i] = 1;
    }
    tables[0].hits = tables[0].count;
  }
};

Plan HandPlan() {
  Plan plan;
  plan.spec.labels = plan.labels = {"label"};
  plan.spec.sparse = {{"a", false, false, 8}, {"b", false, false, 8}, {"c", false, false, 8}};
  plan.spec.dense.resize(2);
  plan.spec.dense[0].name = "x";
  plan.spec.dense[1].name = "y";
  plan.tables = {{"main", 1}};
  plan.sparse.resize(3);
  for (uint32_t slot = 0; slot < 3; ++slot) plan.sparse[slot].pieces = {{0, 1, slot}};
  plan.dense_columns = {1, 0};
  plan.pooled_width = 3;
  plan.dense_width = 2;
  plan.Seal();
  return plan;
}

// Random micro-batches: shared columns differ between requests and batches, with one workspace for all.
void TestRequestsScoreAsTheyDoWhole() {
  const Plan plan = HandPlan();
  const GraphSplit split = SplitGraph(MakeModel(), 3, 2);
  auto layer = std::make_unique<SharedLayer>(split, std::make_unique<HandGraph>(&split), plan);
  layer->CheckAgainst(HandGraph(nullptr), plan);
  const auto rows = std::make_shared<HandRows>();
  const ServedVersion cut("m", 1, plan, rows, std::make_unique<HandGraph>(nullptr), {}, {std::move(layer), ""});
  const ServedVersion whole("m", 1, plan, rows, std::make_unique<HandGraph>(nullptr), {});
  CHECK(cut.why_whole().empty() && !whole.why_whole().empty());
  Samples samples;
  Workspace workspace;
  ServedVersion::Result got, expected;
  std::mt19937 random(11);
  size_t splits = 0;
  for (int round = 0; round < 3000; ++round) {
    const uint32_t user = random() % 32;  // bits: three slots, two floats
    samples.Reset(&cut.plan());
    for (uint32_t requests = random() % 3 + 1; requests > 0; --requests) {
      const uint32_t shared = random() % 4 == 0 ? random() % 32 : user;
      const auto add = [&](uint32_t which) {
        for (uint32_t slot = 0; slot < 3; ++slot) {
          for (uint32_t k = which >> slot & 1 ? random() % 3 : 0; k > 0; --k) samples.AddFeasign(slot, random() % 999);
        }
        for (uint32_t slot = 0; slot < 2; ++slot) {
          if (which >> (3 + slot) & 1) samples.SetDense(slot, 0, static_cast<float>(random() % 999) / 500 - 1);
        }
      };
      samples.BeginRequest();
      add(shared);
      for (uint32_t n = random() % 30; n > 0; --n) {
        samples.BeginSample();
        add(~shared);
      }
      samples.EndRequest();
    }
    cut.Score(samples, &workspace, 0, &got);
    whole.Score(samples, &workspace, 0, &expected);
    CHECK(!expected.is_split && got.scores.size() == samples.size() && expected.scores.size() == samples.size());
    for (size_t i = 0; i < got.scores.size(); ++i) CHECK(std::abs(got.scores[i] - expected.scores[i]) < 1e-6f);
    splits += got.is_split;
  }
  CHECK(splits > 300 && splits < 3000);
}

// A cut graph with different scores is detected.
void TestWrongCutIsRefused() {
  const Plan plan = HandPlan();
  GraphSplit split = SplitGraph(MakeModel(), 3, 2);
  split.sums[0].start[0] += 1;
  const SharedLayer layer(split, std::make_unique<HandGraph>(&split), plan);
  try {
    layer.CheckAgainst(HandGraph(nullptr), plan);
    CHECK(false);
  } catch (const Error& e) {
    CHECK(e.code() == Code::kFailedPrecondition);
  }
}

}  // namespace

int main() {
  TestSumsAndTheirWeights();
  TestWhatIsLeft();
  TestDamagedFiles();
  TestProducts();
  TestRequestsScoreAsTheyDoWhole();
  TestWrongCutIsRefused();
}
