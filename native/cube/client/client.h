// Looks up rows on the servers of one cluster. A call is answered from one version by all shards, or fails.
//
// Threads: any number of threads may call at once; each call's work is done by its own thread. The only other thread is
// the prober of cluster.h.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "cube/client/directory.h"

namespace elasticctr::cube {

struct TableQuery {
  std::string table;  // model/table
  const uint64_t* feasigns;
  size_t count;
};

struct TableRows {
  RowShape shape;
  std::unique_ptr<uint8_t[]> rows;  // count * shape.out_bytes(); rows not found are zeros
  std::unique_ptr<bool[]> found;
};

struct Answer {
  uint64_t version;
  std::vector<uint32_t> degraded;  // shards that did not answer, ascending; always empty unless Options::degrade is set
  std::vector<TableRows> tables;   // in the order of the queries
};

class Client {
 public:
  // Does not connect yet. Throws ConfigError.
  explicit Client(ClientSettings settings);
  ~Client();

  struct Options {
    uint64_t version = 0;     // exactly this one; 0: the active one
    uint32_t timeout_ms = 0;  // 0: the settings'
    bool degrade = false;     // a shard that does not answer gives zeros instead of an error
  };
  // Looks up all tables in one version. REQUIRES: they belong to one model.
  // Throws NotFound (no such table, or the requested version is gone), Unavailable, DeadlineExceeded, Corruption,
  // FailedPrecondition (shards in the wrong order, rows of different widths), Unauthorized. Messages name shard and
  // replicas.
  Answer Get(std::span<const TableQuery> queries, const Options& options);

  // Asks the servers which tables they hold and checks the answers against the settings; throws as Get.
  void Connect(uint32_t timeout_ms);

  Cluster& cluster() { return cluster_; }
  Directory& directory() { return directory_; }
  const HotCache* cache() const { return cache_.get(); }

 private:
  // The state of one call, kept so that later calls reuse its memory.
  struct Call;
  class Borrowed;

  Answer GetOnce(Call& call, std::span<const TableQuery> queries, const Options& options, Clock::time_point deadline);
  // Fills call.states and call.shapes; returns the version to request.
  uint64_t Prepare(Call& call, std::span<const TableQuery> queries, uint64_t wanted, Clock::time_point deadline);
  void Plan(Call& call, std::span<const TableQuery> queries, uint64_t version);
  // Asks all servers what they hold; concurrent callers share one round.
  void Refresh(Exchange& exchange, Clock::time_point deadline, bool settle);
  void AskAll(Exchange& exchange, Clock::time_point deadline, bool settle);
  bool NeedsRefresh(const ModelState& model) const;
  // Throws the error that the legs' failures add up to, unless there are none or they may be degraded. Returns the
  // failed shards.
  std::vector<uint32_t> CheckLegs(const Call& call, const std::string& what, bool degrade) const;
  Answer Finish(Call& call, std::span<const TableQuery> queries, uint64_t version, std::vector<uint32_t> degraded);

  Cluster cluster_;
  Directory directory_;
  std::unique_ptr<HotCache> cache_;
  std::atomic<uint64_t> refreshes_{0};
  std::mutex refresh_mutex_;  // guards is_refreshing_
  std::condition_variable refreshed_;
  bool is_refreshing_ = false;
  std::mutex calls_mutex_;  // guards calls_
  std::vector<std::unique_ptr<Call>> calls_;
};

}  // namespace elasticctr::cube
