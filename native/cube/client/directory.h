// What the servers of a cluster say they hold: tables, their row shape in each version, and which version of each model
// a call should request.
//
// Choice of the version. A replica's active version is news only when it differs from what the same replica said
// before: during an activation the client follows the first replica that switches, and replicas that have not switched
// yet do not pull it back. A replica that merely differs from the others raises a doubt. Asking all of them (Update
// with settle) settles it: the version that all shards hold and most replicas call active wins.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cube/client/cluster.h"
#include "cube/client/gather.h"
#include "cube/client/report.h"

namespace elasticctr::cube {

struct ModelState {
  std::string name;
  size_t index;
  std::atomic<uint64_t> active{0};  // 0: not known
  std::atomic<bool> is_doubtful{false};
  std::atomic<uint64_t> replacements{0};  // how often a version was seen to have other contents than before
  // Since the clock's epoch:
  std::atomic<Clock::duration> heard_at{};    // when a server last reported the active version
  std::atomic<Clock::duration> settled_at{};  // when all servers were last asked
};

struct TableState {
  std::string name;  // model/table
  uint64_t hash;
  ModelState* model;
  std::atomic<uint32_t> unmerged_calls{0};  // until repeats are looked for again
};

class Directory {
 public:
  explicit Directory(Cluster& cluster) : cluster_(cluster) {}

  // One replica's report about itself.
  struct Source {
    Replica* replica;
    std::vector<ModelReport> models;
  };
  // Stores what replicas reported at about the same time. With `settle` the version to request is chosen anew even if
  // the current one is still valid.
  void Update(std::span<const Source> sources, bool settle);

  // Null if no server has ever reported it. States live as long as the directory.
  TableState* Find(const std::string& table);
  // False: no server holds the table in that version. `tag` is that of its identity, 0 if the servers do not report it
  // or hold several. Throws FailedPrecondition if the servers contradict the settings or each other about it.
  bool FindShape(const TableState& table, uint64_t version, RowShape* shape, uint32_t* tag) const;
  std::vector<uint64_t> VersionsOf(const TableState& table) const;
  std::vector<std::string> tables() const;
  // The identities that servers hold under a version number; empty: they do not report them.
  std::vector<std::string> IdentitiesOf(const std::string& model, uint64_t version) const;

  // Stores the active version that a lookup's answer reported.
  void Hear(ModelState& model, Replica& replica, uint64_t active);

 private:
  struct Known {
    RowShape shape;
    uint32_t tag = 0;      // of the version's identity; 0: unknown, or different between servers
    std::string conflict;  // not empty: why lookups must fail
  };

  ModelState& ModelOf(const std::string& name);                      // REQUIRES: mutex_ held exclusively
  TableState& TableOf(const std::string& table, ModelState& model);  // the same
  void Learn(const Replica& replica, const ModelState& model, const VersionReport& version);  // the same
  uint64_t Choose(std::span<const Source> sources, const ModelState& model, bool settle) const;

  Cluster& cluster_;
  mutable std::shared_mutex mutex_;  // guards all below
  std::vector<std::unique_ptr<ModelState>> models_;
  std::unordered_map<std::string, std::unique_ptr<TableState>> tables_;
  std::map<std::pair<const TableState*, uint64_t>, Known> shapes_;
  std::map<std::pair<const ModelState*, uint64_t>, std::set<std::string>> identities_;
};

}  // namespace elasticctr::cube
