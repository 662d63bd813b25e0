// One event loop's view of what is served: its catalog, its counters, its scratch memory. Used only by that loop's
// thread; sessions of every protocol on the loop use it for lookups.
#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cube/server/metrics.h"
#include "cube/server/small.h"
#include "cube/server/store.h"
#include "net/loop/session.h"

namespace elasticctr::cube {

// Limits keys so that one request delays others by about a millisecond at most.
struct ServiceLimits {
  uint32_t max_body_bytes = net::wire::kUsualMaxBodyBytes;
  uint32_t max_keys = net::wire::kUsualMaxKeys;
  uint32_t max_text_keys = 8192;  // of a Redis command; half as many in an HTTP request: they cost more
  uint64_t max_answer_bytes = net::wire::kMaxAnswerBytes;
};

class Worker {
 public:
  Worker(size_t loop, const Store* store, Metrics* metrics, net::Budget* budget, const ServiceLimits& limits,
         const std::atomic<bool>* is_serving);

  // Takes the newest catalog if it changed. Before the server has read its LIVE files the catalog is empty.
  void Refresh();
  const Catalog* catalog();

  struct Target {
    Catalog::Found found;
    TableCells* cells;
  };
  // A table in a version (0: the active one). Repeating the previous request costs no search.
  const Target& Find(uint64_t table_hash, uint64_t version) {
    catalog();
    return FindHere(table_hash, version);
  }
  // The same in the catalog as last taken: several calls for one command see the same versions.
  const Target& FindHere(uint64_t table_hash, uint64_t version);
  // Why a target has no view. REQUIRES: found is the latest result of Find for this version.
  Miss Explain(const Catalog::Found& found, uint64_t version) const;
  // Counts lookups of `keys` feasigns each: requests, feasigns and hits.
  void CountRequests(TableCells* cells, Speaks speaks, size_t requests, size_t keys);
  void CountKeys(TableCells* cells, Speaks speaks, size_t keys, size_t hits);
  // Counts a lookup that failed.
  void CountMiss(TableCells* cells, Speaks speaks, size_t keys, Miss miss);
  void OnAnswered(uint64_t received_ns);

  // "model/table" of all active versions, sorted; the indices are the numbers of Redis databases.
  const std::vector<std::string>& tables() const { return tables_; }
  uint64_t table_hash(size_t i) const { return table_hashes_[i]; }

  LoopCells& cells() { return *cells_; }
  SmallLookups& small() { return small_; }
  const ServiceLimits& limits() const { return limits_; }
  net::Budget& budget() { return *budget_; }
  size_t loop() const { return loop_; }
  // Scratch memory of at least `bytes`, 64-aligned; the same block every time.
  uint8_t* Scratch(size_t bytes);

 private:
  TableCells* CellsOf(uint64_t table_hash);

  const size_t loop_;
  const Store* const store_;
  Metrics* const metrics_;
  LoopCells* const cells_;
  net::Budget* const budget_;
  const ServiceLimits limits_;
  const std::atomic<bool>* const is_serving_;

  std::shared_ptr<const Catalog> catalog_;
  uint64_t generation_ = 0;
  uint64_t last_hash_ = 0;
  uint64_t last_version_ = 0;
  bool has_last_ = false;
  Target last_{};
  boost::unordered_flat_map<uint64_t, TableCells*> known_;
  std::vector<std::string> tables_;
  std::vector<uint64_t> table_hashes_;
  std::vector<uint64_t> scratch_;
  SmallLookups small_;
  uint64_t unanswered_ = 0;  // lookups since the last OnAnswered
};

}  // namespace elasticctr::cube
