#include "cube/client/directory.h"

#include <algorithm>
#include <set>

#include "util/hash.h"
#include "util/status.h"

namespace elasticctr::cube {
namespace {

constexpr size_t kMostTables = 10'000;  // servers are not trusted with this process' memory

const ModelReport* ReportOf(const Directory::Source& source, const std::string& model) {
  for (const ModelReport& report : source.models) {
    if (report.name == model) return &report;
  }
  return nullptr;
}

}  // namespace

ModelState& Directory::ModelOf(const std::string& name) {
  for (const auto& model : models_) {
    if (model->name == name) return *model;
  }
  if (models_.size() >= kMostTables) throw Error(Code::kCorruption, "the servers name too many models");
  models_.push_back(std::make_unique<ModelState>());
  models_.back()->name = name;
  models_.back()->index = models_.size() - 1;
  return *models_.back();
}

TableState& Directory::TableOf(const std::string& table, ModelState& model) {
  const std::string name = model.name + "/" + table;
  auto& state = tables_[name];
  if (state == nullptr) {
    if (tables_.size() > kMostTables) throw Error(Code::kCorruption, "the servers name too many tables");
    state = std::make_unique<TableState>();
    state->name = name;
    state->hash = Xxh64(name.data(), name.size(), 0);
    state->model = &model;
  }
  return *state;
}

void Directory::Update(std::span<const Source> sources, bool settle) {
  const std::unique_lock lock(mutex_);
  std::set<ModelState*> named;
  shapes_.clear();
  const auto before_identities = std::move(identities_);
  identities_.clear();
  for (const Source& source : sources) {
    for (const ModelReport& report : source.models) {
      ModelState& model = ModelOf(report.name);
      named.insert(&model);
      source.replica->NoteActive(model.index, report.active);
      for (const VersionReport& version : report.versions) {
        Learn(*source.replica, model, version);
        if (!version.identity.empty()) identities_[{&model, version.version}].insert(version.identity);
      }
    }
  }
  for (auto& [key, known] : shapes_) {
    const auto found = identities_.find({key.first->model, key.second});
    if (found != identities_.end() && found->second.size() == 1) known.tag = net::wire::TagOf(*found->second.begin());
  }
  for (ModelState* model : named) {
    const bool is_replaced = std::any_of(identities_.begin(), identities_.end(), [&](const auto& now) {
      const auto before = before_identities.find(now.first);
      return now.first.first == model && before != before_identities.end() && before->second != now.second;
    });
    if (is_replaced) model->replacements.fetch_add(1, std::memory_order_relaxed);
  }
  for (ModelState* model : named) {
    const uint64_t before = model->active, now = Choose(sources, *model, settle);
    model->active = now;
    if (before != 0 && before != now) cluster_.counters().version_changes.fetch_add(1, std::memory_order_relaxed);
    model->is_doubtful = false;
    model->heard_at = model->settled_at = Clock::now().time_since_epoch();
  }
}

void Directory::Learn(const Replica& replica, const ModelState& model, const VersionReport& version) {
  for (const TableReport& report : version.tables) {
    const TableState& table = TableOf(report.name, const_cast<ModelState&>(model));
    const RowShape shape{report.encoding, report.sharding, report.dim, report.row_bytes};
    const auto [at, is_new] = shapes_.try_emplace({&table, version.version}, Known{shape, 0, ""});
    std::string& conflict = at->second.conflict;
    if (!conflict.empty()) continue;
    const std::string who = replica.address() + ", listed as shard " + std::to_string(replica.shard()) + " of " +
                            std::to_string(cluster_.shards()) + ", ";
    const auto& sharding = cluster_.settings().sharding;
    if (report.shards != cluster_.shards() || report.shard != replica.shard()) {
      conflict = who + "holds shard " + std::to_string(report.shard) + " of " + std::to_string(report.shards) + " of " +
                 table.name + ": list every shard, in order";
    } else if (sharding && *sharding != report.sharding) {
      conflict = who + "is sharded by " + (report.sharding == Sharding::kModulo ? "modulo" : "buckets") +
                 " and the settings say otherwise: build the index anew or set 'sharding: auto'";
    } else if (!is_new && at->second.shape != shape) {
      conflict = who + "has other rows of " + table.name + " than another shard in version " +
                 std::to_string(version.version) + ": build all shards from one version";
    }
  }
}

uint64_t Directory::Choose(std::span<const Source> sources, const ModelState& model, bool settle) const {
  std::set<uint32_t> shards;
  std::map<uint64_t, std::set<uint32_t>> holders;
  std::map<uint64_t, uint32_t> votes;
  for (const Source& source : sources) {
    const ModelReport* report = ReportOf(source, model.name);
    if (report == nullptr) continue;
    shards.insert(source.replica->shard());
    if (report->active != 0) ++votes[report->active];
    for (const VersionReport& version : report->versions) {
      if (version.is_ready) holders[version.version].insert(source.replica->shard());
    }
  }
  const uint64_t known = model.active;
  if (!settle && known != 0 && holders[known].size() == shards.size()) return known;
  uint64_t best = 0;
  for (const auto& [version, count] : votes) {
    const auto rank = [&](uint64_t v) { return std::pair(holders[v].size(), votes[v]); };
    if (best == 0 || rank(version) >= rank(best)) best = version;  // ascending: the newer one of equals
  }
  return best;
}

TableState* Directory::Find(const std::string& table) {
  const std::shared_lock lock(mutex_);
  const auto found = tables_.find(table);
  return found == tables_.end() ? nullptr : found->second.get();
}

bool Directory::FindShape(const TableState& table, uint64_t version, RowShape* shape, uint32_t* tag) const {
  const std::shared_lock lock(mutex_);
  const auto found = shapes_.find({&table, version});
  if (found == shapes_.end()) return false;
  if (!found->second.conflict.empty()) throw Error(Code::kFailedPrecondition, found->second.conflict);
  *shape = found->second.shape;
  *tag = found->second.tag;
  return true;
}

std::vector<uint64_t> Directory::VersionsOf(const TableState& table) const {
  const std::shared_lock lock(mutex_);
  std::vector<uint64_t> versions;
  for (auto at = shapes_.lower_bound({&table, 0}); at != shapes_.end() && at->first.first == &table; ++at) {
    versions.push_back(at->first.second);
  }
  return versions;
}

std::vector<std::string> Directory::IdentitiesOf(const std::string& model, uint64_t version) const {
  const std::shared_lock lock(mutex_);
  for (const auto& [key, identities] : identities_) {
    if (key.first->name == model && key.second == version) return {identities.begin(), identities.end()};
  }
  return {};
}

std::vector<std::string> Directory::tables() const {
  const std::shared_lock lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, state] : tables_) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

void Directory::Hear(ModelState& model, Replica& replica, uint64_t active) {
  model.heard_at.store(Clock::now().time_since_epoch(), std::memory_order_relaxed);
  const uint64_t before = replica.NoteActive(model.index, active);
  if (active == 0 || active == model.active.load(std::memory_order_relaxed)) return;
  if (before != 0 && before != active) {
    model.active = active;
    cluster_.counters().version_changes.fetch_add(1, std::memory_order_relaxed);
  } else {
    model.is_doubtful = true;
  }
}

}  // namespace elasticctr::cube
