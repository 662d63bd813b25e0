// Every version of every table this process serves, and which version of each model is active. The server and the
// embedded reader are thin layers over it.
//
// Threads: Load, Activate and Retire may be called from any thread and run concurrently with lookups. Loads wait for
// each other; Activate and Retire wait only for a change of the catalog. A reader takes a Catalog, which is immutable;
// its versions stay readable until the last holder releases it, and their memory is freed then. Event loops keep a
// Catalog and compare generation() between two requests; they call current() again only after it changed, so a reader
// never waits for a load and activation is one pointer swap. A thread of the store frees unused versions, never a
// reader.
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
  // Copies the rows of n feasigns to `rows` (n * row_bytes; a missing one is zeros) and sets bit i of found[i / 8] for
  // each one found (REQUIRES: found has (n + 7) / 8 bytes; all are written). Returns the number found in `hits`.
  // kWrongShard: a feasign this shard does not own; the output is then meaningless. Throws Corruption if a base opened
  // with Check::kHeader is damaged, or a mapped file was truncated.
  virtual LookupResult Lookup(const uint64_t* feasigns, size_t n, uint8_t* rows, uint8_t* found,
                              size_t* hits) const = 0;
  // Throws Corruption if a mapped file was truncated.
  virtual void CheckWhole() const = 0;
  // Appends the feasigns of at most `buckets` buckets from `*position` on (0: the first) and advances it. A feasign may
  // appear once per layer, and one of a lower layer may have a tombstone above it: look it up. False: the end was
  // reached.
  virtual bool Scan(uint64_t* position, size_t buckets, std::vector<uint64_t>* feasigns) const = 0;
};

struct ModelVersion {
  uint64_t version;
  uint64_t parent;
  std::string identity;                                 // of its contents and all below them; empty: unknown
  std::vector<std::string> tables;                      // sorted
  std::vector<std::shared_ptr<const TableView>> views;  // one per table
  uint64_t resident_bytes;

  // Why it cannot be used any more: one of its mapped files was truncated. Empty: it can.
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
  uint64_t previous;                                          // the active version before; 0: none
  std::vector<std::shared_ptr<const ModelVersion>> versions;  // ascending
  // Has the active version's number and another identity: replaces it when that number is activated again.
  std::shared_ptr<const ModelVersion> next = nullptr;
};

// REQUIRES: tables are addressed by XXH64("model/table", 0).
class Catalog {
 public:
  struct Found {
    const TableView* view = nullptr;  // null: no such table, or not in that version
    uint64_t version = 0;             // the version that answers
    uint32_t tag = 0;                 // net::wire::TagOf its identity
    uint64_t active = 0;              // the model's active version; 0: none
    bool table_known = false;
  };
  virtual ~Catalog() = default;
  virtual const std::vector<ModelEntry>& models() const = 0;
  // version 0: the active one.
  virtual Found Find(uint64_t table_hash, uint64_t version) const = 0;
  virtual uint64_t TableHash(const std::string& name) const = 0;
  // Of all versions; shared memory counts once.
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
  uint32_t shards = 0;               // 0: whatever the files say
  std::string identity = {};         // empty: unknown, and then treated as equal to any
  std::string parent_identity = {};  // of the parent it was built for; same rule
};

// Whether two identities may have the same contents.
inline bool MayBeSame(const std::string& a, const std::string& b) { return a.empty() || b.empty() || a == b; }

class Store {
 public:
  // `check` applies to bases; deltas are small and always checked completely.
  static std::unique_ptr<Store> Make(Residence residence, Check check);
  virtual ~Store() = default;

  // Makes a version resident in addition to the others. Its parent must be resident (FailedPrecondition names the gap).
  // Loading a resident version does nothing. If it has another identity, it is replaced: at once if it is not active,
  // else by the next Activate. A version with a truncated mapped file is replaced at once; versions based on it are
  // reloaded on demand. Throws Corruption for a file that does not match `files` (model, table, version, parent,
  // shard), AlreadyExists if the version is resident with other contents and identities are unknown.
  virtual void Load(const VersionFiles& files) = 0;
  // Does nothing if it is active and no replacement is waiting. Throws NotFound if the version is not resident.
  virtual void Activate(const std::string& model, uint64_t version) = 0;
  // Drops a version; NotFound if it is not resident, FailedPrecondition if it is active. Versions based on it keep the
  // layers they share.
  virtual void Retire(const std::string& model, uint64_t version) = 0;

  virtual std::shared_ptr<const Catalog> current() const = 0;
  virtual uint64_t generation() const = 0;
};

}  // namespace elasticctr::cube
