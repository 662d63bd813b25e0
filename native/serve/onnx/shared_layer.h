// Passes values that the samples of a request share through the first layer once per request instead of once per
// sample.
//
// A version whose graph can be cut (graph_split.h) has a shared layer in addition to the whole graph. The samples
// determine which columns are shared: those of slots in which every sample of a request uses the request's shared
// values, and dense floats that are the same in all. In a micro-batch of several requests a column counts as shared if
// it is shared in each of them. Sums over columns are rounded in another order than in the whole graph; otherwise the
// results are the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "serve/codec/samples.h"
#include "serve/onnx/graph_split.h"
#include "serve/version/plan.h"
#include "serve/version/pooling.h"
#include "serve/version/version.h"

namespace elasticctr::serve {

class SharedLayer {
 public:
  // `graph` is the cut graph of `split`, which was made from the graph of `plan`.
  SharedLayer(GraphSplit split, std::unique_ptr<DenseGraph> graph, const Plan& plan);

  // Throws FailedPrecondition if its scores of synthetic samples differ from the whole graph's.
  void CheckAgainst(const DenseGraph& whole, const Plan& plan) const;

  // The columns of a batch that are not shared, and the weights prepared for them.
  struct Choice {
    struct Run {
      uint32_t column, count;
    };
    struct Sum {
      std::vector<uint32_t> shared;  // columns added once per request
      std::vector<Run> runs;         // of a sum computed here: columns added once per sample
      std::vector<float> weights;    // of the columns added once per sample
    };
    uint64_t layer = 0;              // the layer it was made for, by its number
    std::vector<uint8_t> is_shared;  // by column
    std::vector<Run> runs;           // of the input `columns`
    uint32_t width = 0;              // of the input `columns`
    std::vector<Sum> sums;
  };
  // Used by one thread; the choice is kept for the next batch, which rarely needs another.
  struct Scratch {
    Choice choice;
    std::vector<uint8_t> is_shared;
    std::vector<uint32_t> differs;                  // by column of `dense`
    std::vector<uint32_t> shared_slots, own_slots;  // indices into the list of pooled slots
    bool repeats_starts = false;                    // several requests: each sample needs its own
    std::vector<float> requests, row, columns;
    std::vector<std::vector<float>> starts, outputs;
    std::vector<DenseGraph::Input> inputs;
  };

  // Finds out what the samples share; false: too little to gain anything. `dense` [samples, dense width] is in the
  // graph's input order.
  bool Choose(const Samples& samples, std::span<const PooledSlot> slots, const float* dense, Scratch* scratch) const;
  // Fills the cut graph's own inputs, after Choose returned true. rows[slot] has the row of each of the slot's values.
  void Fill(const Samples& samples, std::span<const PooledSlot> slots, const float* const* rows, const float* dense,
            Scratch* scratch) const;
  // Computes scores [samples, labels] from the filled inputs. `others` are inputs of the whole graph that the cut graph
  // also reads.
  void Run(size_t samples, std::span<const DenseGraph::Input> others, size_t labels, float* scores,
           Scratch* scratch) const;

  // Whether the cut graph reads this input of the whole one.
  bool Reads(std::string_view input) const;

 private:
  // A row of columns: those of `pooled`, then those of `dense`.
  struct Row {
    const float* pooled;
    const float* dense;
  };
  const float* At(Row row, uint32_t column) const {
    return column < pooled_width_ ? row.pooled + column : row.dense + (column - pooled_width_);
  }
  void Prepare(const std::vector<uint8_t>& is_shared, Choice* choice) const;
  std::vector<Choice::Run> RunsOf(const std::vector<uint8_t>& is_in) const;
  void Begin(size_t requests, size_t samples, Scratch* scratch) const;
  void TakeRequest(size_t request, Row row, Scratch* scratch) const;
  void AddShared(size_t requests, Scratch* scratch) const;
  void TakeSample(size_t request, size_t sample, Row row, Scratch* scratch) const;

  const GraphSplit split_;
  const std::unique_ptr<DenseGraph> graph_;
  const uint64_t number_;  // unique within this process
  const uint32_t pooled_width_, dense_width_, column_count_;
  bool has_product_ = false;                // whether the cut graph multiplies columns itself
  std::vector<std::vector<uint8_t>> uses_;  // per sum: the columns it has weights for
};

// The shared layer of a graph, or the reason why there is none. Never throws for a graph that cannot be cut. `where`
// names it in errors.
SharedLayerResult OpenSharedLayer(const std::string& library, std::string_view onnx, const Plan& plan,
                                  const DenseGraph& whole, const std::string& where);

}  // namespace elasticctr::serve
