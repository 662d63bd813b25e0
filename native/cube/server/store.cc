#include "cube/server/store.h"

#include <algorithm>
#include <mutex>

#include "cube/index/view.h"
#include "cube/server/catalog.h"
#include "cube/server/graveyard.h"
#include "util/status.h"

namespace elasticctr::cube {
namespace {

std::string Named(const std::string& model, uint64_t version) { return model + " version " + std::to_string(version); }

// A resident version with the fields that Load compares and stacks.
struct StoredVersion : ModelVersion {
  std::vector<uint32_t> header_crcs;                        // one per file of `own`
  std::vector<std::string> own;                             // tables it brought files for, sorted
  std::vector<std::shared_ptr<const LayeredView>> layered;  // the views again
};

using StoredPtr = std::shared_ptr<const StoredVersion>;

void CheckFile(const Index& index, const VersionFiles& files, const VersionFiles::File& file) {
  const IndexInfo& info = index.info();
  const auto fail = [&](const std::string& is, const std::string& wanted) {
    throw Error(Code::kCorruption, file.path + ": is " + is + ", not " + wanted + "; it was put in the wrong place");
  };
  const std::string name = files.model + "/" + file.table;
  if (info.name != name) fail("table " + info.name, name);
  if (info.version != files.version) {
    fail("version " + std::to_string(info.version), "version " + std::to_string(files.version));
  }
  if (info.parent != files.parent) {
    fail("over version " + std::to_string(info.parent), "over version " + std::to_string(files.parent));
  }
  if (files.shards != 0 && (info.shard != files.shard || info.shards != files.shards)) {
    fail("shard " + std::to_string(info.shard) + " of " + std::to_string(info.shards),
         "shard " + std::to_string(files.shard) + " of " + std::to_string(files.shards));
  }
}

void CheckLike(const IndexInfo& info, const IndexInfo& other, const std::string& path, const std::string& what) {
  if (info.shard != other.shard || info.shards != other.shards || info.sharding != other.sharding) {
    throw Error(Code::kCorruption, path + ": is shard " + std::to_string(info.shard) + " of " +
                                       std::to_string(info.shards) + ", " + what + " is shard " +
                                       std::to_string(other.shard) + " of " + std::to_string(other.shards));
  }
}

void CheckRows(const IndexInfo& info, const IndexInfo& other, const std::string& path) {
  if (info.encoding != other.encoding || info.dim != other.dim || info.row_bytes != other.row_bytes) {
    throw Error(Code::kCorruption, path + ": its rows are not laid out like those of its parent; publish a base");
  }
}

class LocalStore final : public Store {
 public:
  LocalStore(Residence residence, Check check)
      : residence_(residence), check_(check), current_(std::make_shared<FixedCatalog>(std::vector<ModelEntry>{})) {}

  ~LocalStore() override { current_.reset(); }

  void Load(const VersionFiles& files) override;
  void Activate(const std::string& model, uint64_t version) override;
  void Retire(const std::string& model, uint64_t version) override;

  std::shared_ptr<const Catalog> current() const override { return Current(); }
  uint64_t generation() const override { return generation_.load(std::memory_order_acquire); }

 private:
  std::shared_ptr<const FixedCatalog> Current() const {
    std::lock_guard lock(current_mutex_);
    return current_;
  }
  // A version that may have this identity, including waiting replacements; null: none.
  StoredPtr FindVersion(const std::string& model, uint64_t version, const std::string& identity = {}) const;
  StoredPtr Open(const VersionFiles& files, const StoredPtr& parent) const;
  void CheckSame(const StoredVersion& there, const VersionFiles& files) const;
  void Publish(std::vector<ModelEntry> models);

  const Residence residence_;
  const Check check_;
  std::mutex load_mutex_;             // one Load at a time; Activate and Retire do not wait for its files
  std::mutex change_mutex_;           // one change of the catalog at a time
  mutable std::mutex current_mutex_;  // held only to copy or swap the pointer
  std::shared_ptr<const FixedCatalog> current_;
  std::atomic<uint64_t> generation_{1};
  Graveyard graveyard_;
};

StoredPtr LocalStore::FindVersion(const std::string& model, uint64_t version, const std::string& identity) const {
  const auto catalog = Current();
  const ModelEntry* entry = catalog->FindModel(model);
  if (entry == nullptr) return nullptr;
  const auto is_it = [&](const auto& v) { return v->version == version && MayBeSame(v->identity, identity); };
  if (entry->next != nullptr && !identity.empty() && is_it(entry->next)) {
    return std::static_pointer_cast<const StoredVersion>(entry->next);
  }
  for (const auto& v : entry->versions) {
    if (is_it(v)) return std::static_pointer_cast<const StoredVersion>(v);
  }
  return nullptr;
}

StoredPtr LocalStore::Open(const VersionFiles& files, const StoredPtr& parent) const {
  auto version = std::make_shared<StoredVersion>();
  version->version = files.version;
  version->parent = files.parent;
  version->identity = files.identity;
  version->resident_bytes = 0;
  std::vector<VersionFiles::File> sorted = files.files;
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.table < b.table; });
  if (parent != nullptr) {
    version->tables = parent->tables;
    version->layered = parent->layered;
  }
  const IndexInfo* like = parent != nullptr && !parent->layered.empty() ? &parent->layered.front()->info() : nullptr;
  for (const VersionFiles::File& file : sorted) {
    auto index = Index::Open(file.path, residence_, parent == nullptr ? check_ : Check::kAll);
    CheckFile(*index, files, file);
    if (like != nullptr) CheckLike(index->info(), *like, file.path, parent ? "its parent" : "another table");
    if (!version->own.empty() && version->own.back() == file.table) {
      throw Error(Code::kConfig, file.path + ": table " + file.table + " is listed twice");
    }
    version->own.push_back(file.table);
    version->header_crcs.push_back(index->header_crc());
    const auto at = std::lower_bound(version->tables.begin(), version->tables.end(), file.table);
    const auto i = at - version->tables.begin();
    if (parent == nullptr) {
      version->tables.push_back(file.table);
      std::vector<std::shared_ptr<const Index>> layers{std::move(index)};
      version->layered.push_back(std::make_shared<const LayeredView>(std::move(layers)));
      if (like == nullptr) like = &version->layered.front()->info();
      continue;
    }
    if (at == version->tables.end() || *at != file.table) {
      throw Error(Code::kFailedPrecondition, file.path + ": a delta for table " + file.table +
                                                 ", which its parent does not have; a table starts with a base");
    }
    const LayeredView& under = *version->layered[static_cast<size_t>(i)];
    CheckRows(index->info(), under.info(), file.path);
    version->layered[static_cast<size_t>(i)] = Stack(std::move(index), under);
  }
  // Merged deltas were read from files that may have been truncated meanwhile.
  for (const auto& view : version->layered) view->CheckWhole();
  version->views.assign(version->layered.begin(), version->layered.end());
  for (const auto& view : version->layered) {
    for (const auto& layer : view->layers()) version->resident_bytes += layer->resident_bytes();
  }
  return version;
}

void LocalStore::CheckSame(const StoredVersion& there, const VersionFiles& files) const {
  if (!files.identity.empty() && there.identity == files.identity) return;
  std::vector<std::pair<std::string, uint32_t>> offered, resident;
  for (const auto& file : files.files) {
    const auto index = Index::Open(file.path, Residence::kMapped, Check::kHeader);
    CheckFile(*index, files, file);
    offered.emplace_back(file.table, index->header_crc());
  }
  for (size_t i = 0; i < there.own.size(); ++i) resident.emplace_back(there.own[i], there.header_crcs[i]);
  std::sort(offered.begin(), offered.end());
  if (there.parent != files.parent || offered != resident) {
    throw Error(Code::kAlreadyExists, Named(files.model, files.version) +
                                          " is loaded with other contents; versions never change, publish a new one");
  }
}

void LocalStore::Load(const VersionFiles& files) {
  std::lock_guard loading(load_mutex_);
  if (files.version == 0) throw Error(Code::kConfig, files.model + ": versions start at 1");
  const StoredPtr there = FindVersion(files.model, files.version, files.identity);
  const bool is_damaged = there != nullptr && !there->Damage().empty();
  if (there != nullptr && !is_damaged) return CheckSame(*there, files);
  StoredPtr parent;
  if (files.parent != 0) {
    parent = FindVersion(files.model, files.parent, files.parent_identity);
    if (parent == nullptr) {
      throw Error(Code::kFailedPrecondition, Named(files.model, files.version) + " stands on version " +
                                                 std::to_string(files.parent) +
                                                 ", which is not loaded as it was then; load that first");
    }
  } else if (files.files.empty()) {
    throw Error(Code::kData, Named(files.model, files.version) + " is a base without tables");
  }
  const StoredPtr version = Open(files, parent);

  std::lock_guard change(change_mutex_);
  std::vector<ModelEntry> models = Current()->models();
  auto entry = std::lower_bound(models.begin(), models.end(), files.model,
                                [](const ModelEntry& m, const std::string& name) { return m.name < name; });
  if (entry == models.end() || entry->name != files.model) entry = models.insert(entry, {files.model, 0, 0, {}});
  const auto at = std::find_if(entry->versions.begin(), entry->versions.end(),
                               [&](const auto& v) { return v->version >= files.version; });
  if (at == entry->versions.end() || (*at)->version != files.version) {
    entry->versions.insert(at, version);
  } else if (entry->active == files.version && !is_damaged) {
    entry->next = version;
  } else {
    *at = version;
  }
  Publish(std::move(models));
}

void LocalStore::Activate(const std::string& model, uint64_t version) {
  std::lock_guard change(change_mutex_);
  if (FindVersion(model, version) == nullptr) {
    throw Error(Code::kNotFound, Named(model, version) + " is not loaded; load it first");
  }
  std::vector<ModelEntry> models = Current()->models();
  for (ModelEntry& entry : models) {
    if (entry.name != model) continue;
    const bool replaces = entry.next != nullptr && entry.next->version == version;
    if (entry.active == version && !replaces) return;
    if (replaces) {
      for (auto& v : entry.versions) {
        if (v->version == version) v = entry.next;
      }
      entry.next = nullptr;
    }
    if (entry.active == version) continue;
    entry.previous = entry.active;
    entry.active = version;
  }
  Publish(std::move(models));
}

void LocalStore::Retire(const std::string& model, uint64_t version) {
  std::lock_guard change(change_mutex_);
  if (FindVersion(model, version) == nullptr) throw Error(Code::kNotFound, Named(model, version) + " is not loaded");
  std::vector<ModelEntry> models = Current()->models();
  for (auto entry = models.begin(); entry != models.end(); ++entry) {
    if (entry->name != model) continue;
    if (entry->active == version) {
      throw Error(Code::kFailedPrecondition, Named(model, version) + " is active; activate another one first");
    }
    if (entry->previous == version) entry->previous = 0;
    if (entry->next != nullptr && entry->next->version == version) entry->next = nullptr;
    std::erase_if(entry->versions, [&](const auto& v) { return v->version == version; });
    if (entry->versions.empty()) {
      models.erase(entry);
      break;
    }
  }
  Publish(std::move(models));
}

void LocalStore::Publish(std::vector<ModelEntry> models) {
  std::shared_ptr<const FixedCatalog> catalog = std::make_shared<FixedCatalog>(std::move(models));
  {
    std::lock_guard lock(current_mutex_);
    current_.swap(catalog);
  }
  generation_.fetch_add(1, std::memory_order_release);
  graveyard_.Bury(std::move(catalog));
}

}  // namespace

std::unique_ptr<Store> Store::Make(Residence residence, Check check) {
  return std::make_unique<LocalStore>(residence, check);
}

}  // namespace elasticctr::cube
