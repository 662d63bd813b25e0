// What a text parser needs to know about a schema. Made by data/formats/parser.py, checked by Parser's constructor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace elasticctr {

enum class TextFormat : uint8_t { kFeasign, kSlot, kCriteo, kLibsvm, kLibffm };

enum class Transform : uint8_t { kNone, kLog1p, kScale };

struct SparseSpec {
  std::string name;
  bool hashed = false;     // values are strings, hashed with hash_name()
  bool keep_last = false;  // of more than max_values values keep the last, not the first
  uint32_t max_values = 1024;
  std::string hashed_as = {};  // the name that strings are hashed with; empty: the slot's own

  const std::string& hash_name() const { return hashed_as.empty() ? name : hashed_as; }
};

struct DenseSpec {
  std::string name;
  uint32_t dim = 1;
  Transform transform = Transform::kNone;
  std::vector<double> min, diff;  // dim values each for kScale; kLog1p: no min, and no diff or dim values
  bool marks_missing = false;     // a missing value is -0.0, which a model reads as 0 and a bucket as missing

  float missing() const { return marks_missing ? -0.0f : 0.0f; }
  // Whether min and diff have the length that the transform reads.
  bool is_whole() const {
    if (transform == Transform::kScale) return min.size() == dim && diff.size() == dim;
    return diff.empty() || diff.size() == dim;
  }
};

struct ParserSpec {
  TextFormat format = TextFormat::kSlot;
  std::vector<std::string> labels;
  std::string weight;  // empty: every sample weighs 1
  std::vector<SparseSpec> sparse;
  std::vector<DenseSpec> dense;
  uint64_t hash_seed = 0;
  bool require_label = true;  // otherwise a missing label is NaN, for scoring logs without labels

  uint32_t dense_dim() const {
    uint32_t sum = 0;
    for (const auto& slot : dense) sum += slot.dim;
    return sum;
  }
  // The dense floats of a sample without dense values.
  std::vector<float> missing_dense() const {
    std::vector<float> floats;
    for (const auto& slot : dense) floats.insert(floats.end(), slot.dim, slot.missing());
    return floats;
  }
};

}  // namespace elasticctr
