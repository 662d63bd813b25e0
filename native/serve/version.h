// One version of one model, ready to score: plan, rows and dense graph that belong together. Immutable; any number of
// threads may score at once, each with a Workspace of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "serve/codec.h"
#include "serve/plan.h"
#include "serve/samples.h"

namespace elasticctr::serve {

// Where a version's rows come from: cube files in this process, or the servers of a Cube.
class RowSource {
 public:
  struct Table {
    const uint64_t* feasigns;  // distinct
    size_t count;
    float* rows;     // [count, dim]; zeros where there is none
    uint8_t* found;  // [count], 0 or 1
  };
  struct Trouble {
    std::vector<uint32_t> dead_shards;
    bool late = false;
  };
  virtual ~RowSource() = default;
  // Rows of exactly the version this source was made for, one question per shard. A shard that does not answer, or not
  // by the deadline, throws Unavailable or DeadlineExceeded, unless the policy lets it be `trouble`.
  virtual void LookUp(Table* tables, size_t count, uint64_t deadline_ns, Trouble* trouble) const = 0;
};

struct Policy {
  bool fails_on_missing = false;  // below min_coverage: Unavailable instead of a degraded answer
  double min_coverage = 0;        // of a request; 0: missing rows are never trouble
  bool fails_on_dead_shard = true;
  bool fails_on_late_cube = true;
};

// The dense graph in ONNX Runtime.
class DenseGraph {
 public:
  virtual ~DenseGraph() = default;
  struct Input {
    const char* name;
    const void* data;
    bool is_int64;
    std::vector<int64_t> shape;
  };
  // Scores [n, labels] into `out`.
  virtual void Run(const std::vector<Input>& inputs, size_t n, size_t labels, float* out) const = 0;
  // `library`: the path of libonnxruntime.so; `where` names the graph in errors. Throws ConfigError (no usable
  // library), Corruption (no usable graph).
  static std::unique_ptr<DenseGraph> Open(const std::string& library, std::string_view onnx, const std::string& where);
};

class Workspace;  // buffers of one worker

class ServedVersion {
 public:
  ServedVersion(std::string model, uint64_t version, Plan plan, std::shared_ptr<const RowSource> rows,
                std::unique_ptr<DenseGraph> graph, Policy policy);
  ~ServedVersion();

  const std::string& model() const;
  uint64_t version() const;
  const Plan& plan() const;
  const Policy& policy() const;

  struct Result {
    std::vector<float> scores;       // [samples, labels]
    std::vector<Coverage> coverage;  // one per request
    uint64_t lookup_ns = 0, dense_ns = 0;
  };
  // One lookup, one run of the graph. REQUIRES: samples were put together with plan().
  void Score(const Samples& samples, Workspace* workspace, uint64_t deadline_ns, Result* result) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace elasticctr::serve
