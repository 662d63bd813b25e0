// Every version of every table this process serves, and which version of each model is active. The server and the
// embedded reader are thin over it.
//
// Threads: Load, Activate and Retire may be called from any thread and run beside lookups; loads wait for each other,
// Activate and Retire wait for nothing but a change of the catalog. A reader takes a Catalog, which never
// changes; its versions stay readable until the last holder releases it, and their memory is freed then. Event loops
// keep a Catalog and check generation() between two requests; only when it moved do they call current() again, so a
// reader never waits for a load and activation is one pointer. Unused versions are freed by a thread of the store,
// never by a reader.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cube/index/index.h"
#include "cube/index/lookup.h"
#include "util/status.h"

namespace elasticctr::cube {

// One table in one version: a base and the deltas over it, newest first (several small deltas are merged in memory).
class TableView {
 public:
  virtual ~TableView() = default;
  virtual const IndexInfo& info() const = 0;  // of the newest layer; rows and tombstones are the layer's own
  virtual uint64_t rows() const = 0;          // upper bound of live rows over all layers
  // Copies the rows of n feasigns to `rows` (n * row_bytes; a missing one is zeros) and sets bit i of found[i / 8]
  // where there was one (REQUIRES: found has (n + 7) / 8 bytes; all are written). Returns how many were found in
  // `hits`. kWrongShard: a feasign this shard does not own; what was written is then meaningless. Throws Corruption
  // where a base opened with Check::kHeader is damaged, or a mapped file was cut short since.
  virtual LookupResult Lookup(const uint64_t* feasigns, size_t n, uint8_t* rows, uint8_t* found,
                              size_t* hits) const = 0;
  // Throws Corruption if a mapped file was cut short.
  virtual void CheckWhole() const = 0;
  // Appends the feasigns of at most so many buckets from `*position` on (0: the first) and moves it past them. A
  // feasign may come once per layer, and one of a layer below may have a tombstone above: look it up. False: that was
  // the end.
  virtual bool Scan(uint64_t* position, size_t buckets, std::vector<uint64_t>* feasigns) const = 0;
};

struct ModelVersion {
  uint64_t version;
  uint64_t parent;
  std::string identity;                                 // names its contents and all below them; empty: not known
  std::vector<std::string> tables;                      // sorted
  std::vector<std::shared_ptr<const TableView>> views;  // one per table
  uint64_t resident_bytes;

  // Why it cannot be used any more: a mapped file of it was cut short. Empty: it can.
  std::string Damage() const {
    try {
      for (const auto& view : views) view->CheckWhole();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
};

struct ModelEntry {
  std::string name;
  uint64_t active;                                            // 0: none
  uint64_t previous;                                          // what was active before; 0: none
  std::vector<std::shared_ptr<const ModelVersion>> versions;  // ascending
  // Of the active version's number with another identity: takes its place once that number is activated again.
  std::shared_ptr<const ModelVersion> next = nullptr;
};

// REQUIRES: tables are addressed by XXH64("model/table", 0).
class Catalog {
 public:
  struct Found {
    const TableView* view = nullptr;  // null: no such table, or no such version of it
    uint64_t version = 0;             // that answers
    uint32_t tag = 0;                 // net::wire::TagOf its identity
    uint64_t active = 0;              // the model's active version; 0: none
    bool table_known = false;
  };
  virtual ~Catalog() = default;
  virtual const std::vector<ModelEntry>& models() const = 0;
  // version 0: the active one.
  virtual Found Find(uint64_t table_hash, uint64_t version) const = 0;
  virtual uint64_t TableHash(const std::string& name) const = 0;
  // Of all versions, what they share counted once.
  virtual uint64_t resident_bytes() const = 0;
};

struct VersionFiles {
  std::string model;
  uint64_t version;
  uint64_t parent;  // 0: base
  struct File {
    std::string table;
    std::string path;
  };
  std::vector<File> files;
  uint32_t shard = 0;
  uint32_t shards = 0;               // 0: whichever the files are of
  std::string identity = {};         // empty: not known, and then never found to differ
  std::string parent_identity = {};  // of the parent it was built for; likewise
};

// Whether two identities may be of the same contents.
inline bool MayBeSame(const std::string& a, const std::string& b) { return a.empty() || b.empty() || a == b; }

class Store {
 public:
  // `check` is for bases; deltas are small and always checked whole.
  static std::unique_ptr<Store> Make(Residence residence, Check check);
  virtual ~Store() = default;

  // Makes a version resident beside the others. Its parent must be resident (FailedPrecondition names the gap); loading
  // a version that is there already does nothing. One that is there with another identity is replaced: at once if it is
  // not active, else by the next Activate. One of which a mapped file was cut short is replaced at once; those that
  // stand on it are loaded again when they are asked for. Throws Corruption for a file that is not what `files` says it
  // is (model, table, version, parent, shard), AlreadyExists if the version is there with other contents and identities
  // are not known.
  virtual void Load(const VersionFiles& files) = 0;
  // Does nothing if it is active already and none waits to take its place. Throws NotFound if the version is not
  // resident.
  virtual void Activate(const std::string& model, uint64_t version) = 0;
  // Drops a version; NotFound if it is not there, FailedPrecondition if it is active. Versions standing on it keep the
  // layers they share.
  virtual void Retire(const std::string& model, uint64_t version) = 0;

  virtual std::shared_ptr<const Catalog> current() const = 0;
  virtual uint64_t generation() const = 0;
};

}  // namespace elasticctr::cube
