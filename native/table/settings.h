// The settings of a table. The Python settings (src/elasticctr/table/settings.py) are checked in Python and arrive here
// as plain values; Check reports the errors of native callers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace elasticctr {

enum class OptimizerKind : uint8_t { kSgd = 0, kAdagrad = 1, kRowwiseAdagrad = 2, kAdam = 3, kFtrl = 4 };

// One struct for all optimizers; each reads the fields its formula names (docs/concepts/tables.md).
struct OptimizerSettings {
  OptimizerKind kind = OptimizerKind::kSgd;
  float learning_rate = 0.01f;  // FTRL: alpha
  float epsilon = 1e-8f;
  float beta1 = 0.9f;  // Adam
  float beta2 = 0.999f;
  float beta = 1.0f;                 // FTRL
  float initial_accumulator = 0.0f;  // Adagrad, row-wise Adagrad, FTRL
  float l1 = 0.0f;                   // FTRL: in its formula; others: a proximal step on touched rows
  float l2 = 0.0f;                   // FTRL: in its formula; others: added to the gradient of touched rows
  float gradient_clip = 0.0f;        // 0: none; else every summed gradient is cut to [-clip, clip]
  float weight_bound = 0.0f;         // 0: none; else weights are kept in [-bound, bound]
  uint32_t catch_up = 0;             // Adam: steps that an untouched row makes up for; 0: it stays unchanged
};

enum class InitializerKind : uint8_t { kZeros = 0, kConstant = 1, kUniform = 2, kNormal = 3 };

struct InitializerSettings {
  InitializerKind kind = InitializerKind::kZeros;
  float a = 0.0f;  // constant: the value; uniform: low; normal: mean
  float b = 0.0f;  // uniform: high; normal: standard deviation
};

// A group of weights with its own optimizer, for example `linear` (1) beside `embedding` (9).
struct SegmentSettings {
  std::string name;
  uint32_t dim = 0;
  OptimizerSettings optimizer;
  InitializerSettings initializer;
};

// A new feasign gets a row at its `count`-th occurrence, or each occurrence draws one with `probability`.
struct AdmissionSettings {
  uint32_t count = 1;        // 1: at once
  double probability = 1.0;  // 1: at once
};

struct TableSettings {
  std::string name;
  uint64_t seed = 0;
  bool counters = true;  // show, click and last-seen per row: 12 bytes
  std::vector<SegmentSettings> segments;
  AdmissionSettings admission;

  // Throws Error(kConfig) for contradictory or unsupported settings.
  void Check() const;
};

const char* OptimizerName(OptimizerKind kind);

}  // namespace elasticctr
