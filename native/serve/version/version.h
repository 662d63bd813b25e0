// One version of one model, ready to score: its plan, rows and dense graph. Immutable; any number of threads may score
// at once, each with its own Workspace.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "serve/codec/codec.h"
#include "serve/codec/samples.h"
#include "serve/version/plan.h"

namespace elasticctr::serve {

// The source of a version's rows: cube files in this process, or the servers of a Cube.
class RowSource {
 public:
  struct Table {
    const uint64_t* feasigns;  // may repeat
    size_t count;
    float* rows;      // [count, dim]; zeros where there is none
    uint8_t* found;   // [count], 0 or 1
    size_t hits = 0;  // how many were found
  };
  struct Trouble {
    std::vector<uint32_t> dead_shards;
    bool late = false;
  };
  virtual ~RowSource() = default;
  // Whether lookups wait for other processes; only then deadlines matter.
  virtual bool is_remote() const { return false; }
  // Rows of exactly the version this source was made for, one question per shard. A shard that does not answer by the
  // deadline throws Unavailable or DeadlineExceeded, unless the policy allows it, in which case it is noted in
  // `trouble`.
  virtual void LookUp(Table* tables, size_t count, uint64_t deadline_ns, Trouble* trouble) const = 0;
};

struct Policy {
  bool fails_on_missing = false;  // below a min_coverage over 0: Unavailable instead of a degraded answer
  double min_coverage = 0;        // of a request; 0: degraded only if no row was found
  bool fails_on_dead_shard = true;
  bool fails_on_late_cube = true;
  uint32_t cube_timeout_ms = 200;  // of a lookup; at most the requests' remaining time
};

// The dense graph; serve/onnx/runtime.h has the implementation. Any number of threads may run it at once.
class DenseGraph {
 public:
  virtual ~DenseGraph() = default;
  struct Input {
    const char* name;
    const void* data;
    bool is_int64;
    size_t rank;
    int64_t shape[3];
    bool is_of_all = false;  // the same for every sample; else the first dimension is the samples
  };
  // Scores [n, labels] into `out`.
  virtual void Run(std::span<const Input> inputs, size_t n, size_t labels, float* out) const = 0;
};

class SharedLayer;  // shared_layer.h
struct SharedLayerResult {
  SharedLayerResult(std::unique_ptr<SharedLayer> layer, std::string why_not);
  explicit SharedLayerResult(std::string why_not);  // none; for files that do not include shared_layer.h
  SharedLayerResult(SharedLayerResult&&) noexcept;
  ~SharedLayerResult();
  std::unique_ptr<SharedLayer> layer;  // null: every sample passes through the whole graph
  std::string why_not;
};

// The buffers of one scoring thread; kept for the next batch.
class Workspace {
 public:
  Workspace();
  ~Workspace();

 private:
  friend class ServedVersion;
  struct Buffers;
  std::unique_ptr<Buffers> buffers_;
};

class ServedVersion {
 public:
  // `shared`, if given, belongs to the same graph and scores requests whose samples have much in common.
  ServedVersion(std::string model, uint64_t version, Plan plan, std::shared_ptr<const RowSource> rows,
                std::unique_ptr<DenseGraph> graph, Policy policy,
                SharedLayerResult shared = SharedLayerResult("not asked for"));
  ~ServedVersion();

  const std::string& model() const;
  uint64_t version() const;
  const Plan& plan() const;
  const Policy& policy() const;

  bool is_remote() const;                // whether rows come over the network
  const std::string& why_whole() const;  // why there is no shared layer; empty: there is one

  struct Result {
    std::vector<float> scores;       // [samples, labels]
    std::vector<Coverage> coverage;  // one per request
    uint64_t lookup_ns = 0, dense_ns = 0;
    bool is_split = false;  // shared values passed through the first layer once
  };
  // One lookup, one run of the graph. A request whose coverage is below the policy's is marked (is_below), never an
  // error here: that would fail the other requests too. Remote rows that do not arrive by `deadline_ns`
  // (CLOCK_MONOTONIC; 0: none) throw, or mark every request, as the policy says.
  // REQUIRES: samples were built with plan().
  void Score(const Samples& samples, Workspace* workspace, uint64_t deadline_ns, Result* result) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace elasticctr::serve
