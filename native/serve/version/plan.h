// The parts of a version's schema.json that describe samples, prepared for the hot path. Made by
// serve/activation/served_version.py from the same settings as the trainer's parser, so that both read a log in the
// same way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sample/derive.h"
#include "sample/spec.h"

namespace elasticctr::serve {

enum class Pooling : uint8_t { kSum, kMean, kNone };

// Floats row … row + dim of a pooled row go to columns column … of the input `pooled`.
struct Piece {
  uint32_t row;
  uint32_t dim;
  uint32_t column;
};

// One slot that is looked up: those of ParserSpec::sparse in order, then derived ones.
struct SparsePlan {
  uint32_t table = 0;  // index into Plan::tables; kUnused: the model does not use it
  Pooling pooling = Pooling::kSum;
  std::vector<Piece> pieces;    // of a pooled slot
  uint32_t row = 0, dim = 0;    // of a sequence: floats row … row + dim of each value
  uint32_t max_values = 0;      // pooled: the first are kept; a sequence: the last
  std::string input, lengths;   // of a sequence: names of its inputs
  std::optional<uint64_t> oov;  // a value without a row reads as the row of this feasign; nullopt: as zeros
  bool is_typed = false;        // text is hashed although numbers are feasigns: `values: auto` of a Parquet log

  static constexpr uint32_t kUnused = ~0u;
};

struct TablePlan {
  std::string name;
  uint32_t dim;
};

struct Plan {
  ParserSpec spec;  // `format` is the default for lines
  Deriver derived;  // slots made from those of `spec`
  std::vector<SparsePlan> sparse;
  std::vector<uint32_t> dense_columns;  // of each dense slot, in the input `dense`
  std::vector<TablePlan> tables;
  std::vector<std::string> labels;
  uint32_t pooled_width = 0;  // 0: the graph has no such input
  uint32_t dense_width = 0;
  std::unordered_map<std::string, std::string> paddle_feeds;  // what Paddle Serving's clients call a slot, and its name

  // Filled by Seal.
  struct SlotName {
    bool is_dense;
    uint32_t index;
  };
  std::unordered_map<std::string, SlotName> names;
  std::vector<uint64_t> hash_seeds;  // of each sparse slot of the log
  std::vector<float> missing_dense;  // of a sample without dense values
  uint64_t number = 0;               // unique among the plans sealed by this process
  void Seal();                       // throws ConfigError if sizes or columns do not match
};

}  // namespace elasticctr::serve
