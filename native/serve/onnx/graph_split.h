// Cuts a dense graph behind its first layer, so that what the samples of a request share can go through that layer
// once.
//
// The inputs `pooled` and `dense` side by side are the graph's columns. A tensor is a sum over columns if every float
// of it is a constant plus a weighted sum of columns, or of their squares: a tower's first layer before its activation,
// a wide part, the sums of a factorization machine. Such a sum can be taken apart: shared columns once per request, the
// others once per sample. What is left of the graph begins with these sums; it reads columns itself where it does more
// with them (crosses, attention).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace elasticctr::serve {

struct ColumnSum {
  std::string tensor;  // its name in the whole graph
  uint32_t width = 0;
  bool is_of_squares = false;
  std::vector<float> weights;  // [columns, width]
  std::vector<float> start;    // [width], the constant
  // Names of the cut graph's inputs if it multiplies itself: weights [k, width] of the k columns in kColumnsInput, and
  // what to add to the product, [1, width] or [n, width]. Empty: the sum [n, width] is its input, by its own name.
  std::string weights_input, start_input;
};

struct GraphSplit {
  static constexpr char kColumnsInput[] = "elasticctr.columns";

  std::string onnx;  // the cut graph; its output is `scores`
  std::vector<ColumnSum> sums;
  std::vector<std::string> inputs;  // those of the whole graph that it reads still
};

// Throws FailedPrecondition with the reason where that is not possible or would gain nothing, DataError for bytes that
// are not a graph.
GraphSplit SplitGraph(std::string_view onnx, uint32_t pooled_width, uint32_t dense_width);

}  // namespace elasticctr::serve
