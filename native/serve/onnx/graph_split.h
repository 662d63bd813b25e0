// Cuts a dense graph after its first layer, so that values shared by the samples of a request pass through that layer
// once.
//
// The graph's columns are the inputs `pooled` and `dense` side by side. A tensor is a sum over columns if every float
// of it is a constant plus a weighted sum of columns, or of their squares: a tower's first layer before its activation,
// a wide part, the sums of a factorization machine. Such a sum can be split: shared columns once per request, the
// others once per sample. The cut graph begins with these sums; it also reads columns itself if it does more with them
// (crosses, attention).
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
  // The cut graph's input names if it multiplies itself: weights [k, width] of the k columns in kColumnsInput, and what
  // to add to the product, [1, width] or [n, width]. Empty: the sum [n, width] is its input, under its own name.
  std::string weights_input, start_input;
};

struct GraphSplit {
  static constexpr char kColumnsInput[] = "elasticctr.columns";

  std::string onnx;  // the cut graph; its output is `scores`
  std::vector<ColumnSum> sums;
  std::vector<std::string> inputs;  // inputs of the whole graph that it still reads
};

// Throws FailedPrecondition with the reason if the graph cannot be split or would gain nothing, DataError for bytes
// that are not a graph.
GraphSplit SplitGraph(std::string_view onnx, uint32_t pooled_width, uint32_t dense_width);

}  // namespace elasticctr::serve
