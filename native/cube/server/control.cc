#include "cube/server/control.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "net/socket.h"
#include "util/signals.h"

namespace elasticctr::cube {
namespace {

constexpr size_t kMaxWaiting = 1024;  // jobs of a kind
constexpr size_t kMaxFailed = 64;     // remembered per model
constexpr size_t kMaxChain = 100'000;

const ModelEntry* FindModel(const Catalog& catalog, const std::string& model) {
  for (const ModelEntry& entry : catalog.models()) {
    if (entry.name == model) return &entry;
  }
  return nullptr;
}

void Log(const std::string& text) { std::fprintf(stderr, "cube server: %s\n", text.c_str()); }

std::string Named(const std::string& model, uint64_t version) {
  return "version " + std::to_string(version) + " of " + model;
}

}  // namespace

Control::Control(Directory directory, Store* store, bool activates_newest, std::function<void()> on_change)
    : directory_(std::move(directory)),
      store_(store),
      activates_newest_(activates_newest),
      on_change_(std::move(on_change)) {
  directory_.RequireShardNamed();
}

Control::~Control() { Stop(); }

void Control::Start(std::function<void()> on_started) {
  on_started_ = std::move(on_started);
  const BlockedSignals blocked;
  loader_ = std::thread([this] {
    LoadAtStart();
    Run(&loads_, &wake_loader_);
  });
  worker_ = std::thread([this] { Run(&jobs_, &wake_jobs_); });
}

void Control::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_loader_.notify_all();
  wake_jobs_.notify_all();
  started_.notify_all();
  if (loader_.joinable()) loader_.join();
  if (worker_.joinable()) worker_.join();
}

bool Control::WaitStarted(double timeout_s) {
  std::unique_lock lock(mutex_);
  return started_.wait_for(lock, std::chrono::duration<double>(timeout_s),
                           [this] { return state_.has_started || stopping_; });
}

bool Control::Post(std::function<void()> job, bool is_load) {
  {
    std::lock_guard lock(mutex_);
    auto& queue = is_load ? loads_ : jobs_;
    if (stopping_ || queue.size() >= kMaxWaiting) return false;
    queue.push_back(std::move(job));
  }
  (is_load ? wake_loader_ : wake_jobs_).notify_one();
  return true;
}

void Control::Run(std::deque<std::function<void()>>* queue, std::condition_variable* wake) {
  while (true) {
    std::function<void()> job;
    {
      std::unique_lock lock(mutex_);
      wake->wait(lock, [&] { return stopping_ || !queue->empty(); });
      if (stopping_) return;
      job = std::move(queue->front());
      queue->pop_front();
    }
    job();
  }
}

void Control::LoadAtStart() {
  for (const std::string& model : directory_.Models()) {
    try {
      LoadModelAtStart(model);
    } catch (const std::exception& e) {
      // No other version is served instead: after repairing the files, the operator activates it again.
      Log("model " + model + " is not served: " + e.what());
      std::lock_guard lock(mutex_);
      state_.broken[model] = e.what();
    }
  }
  on_started_();
  {
    std::lock_guard lock(mutex_);
    state_.has_started = true;
  }
  started_.notify_all();
}

void Control::LoadModelAtStart(const std::string& model) {
  std::optional<Live> live = directory_.ReadLive(model);
  if (!live.has_value()) {
    std::vector<uint64_t> versions = directory_.Versions(model);
    if (!activates_newest_ || versions.empty()) return;
    LoadNow(model, versions.back());
    ActivateInStore(model, versions.back(), false);
    return;
  }
  LoadNow(model, live->version);
  if (live->previous != 0 && live->previous != live->version) {
    try {
      LoadNow(model, live->previous);
      store_->Activate(model, live->previous);
    } catch (const std::exception& e) {
      Log("rolling " + model + " back will not be instant: " + e.what());
    }
  }
  ActivateInStore(model, live->version, false);
}

LoadState Control::RequestLoad(const std::string& model, uint64_t version) {
  if (IsLoaded(model, version)) return LoadState::kReady;
  {
    std::lock_guard lock(mutex_);
    auto& records = state_.records[model];
    auto found = records.find(version);
    if (found != records.end() && found->second.state == LoadState::kLoading) return LoadState::kLoading;
    records[version] = {};
  }
  auto load = [this, model, version] {
    try {
      LoadNow(model, version);
    } catch (const std::exception& e) {
      Log(Named(model, version) + " cannot be loaded: " + e.what());
    }
  };
  if (!Post(load, true)) {
    std::lock_guard lock(mutex_);
    state_.records[model].erase(version);
    throw Error(Code::kUnavailable, "too many versions wait to be loaded; try again later");
  }
  return LoadState::kLoading;
}

void Control::LoadNow(const std::string& model, uint64_t version) {
  if (version == 0) throw Error(Code::kConfig, "versions are whole numbers from 1");
  std::lock_guard one_at_a_time(load_mutex_);
  auto started = std::chrono::steady_clock::now();
  try {
    std::vector<VersionFiles> chain;
    for (uint64_t v = IsLoaded(model, version) ? 0 : version; v != 0; v = chain.back().parent) {
      const std::string wanted = chain.empty() ? "" : chain.back().parent_identity;
      if (!chain.empty() && IsResident(model, v, wanted)) break;
      if (chain.size() == kMaxChain)
        throw Error(Code::kCorruption, Named(model, version) + " stands on too many versions");
      VersionFiles files = directory_.Read(model, v);
      if (!MayBeSame(files.identity, wanted)) {
        throw Error(Code::kCorruption, Named(model, chain.back().version) + " stands on another version " +
                                           std::to_string(v) + " than the one here; prepare it again");
      }
      chain.push_back(std::move(files));
    }
    for (; !chain.empty(); chain.pop_back()) {
      const VersionFiles& files = chain.back();
      Record(model, files.version, {});
      store_->Load(files);
      on_change_();
      Record(model, files.version, {LoadState::kReady, "", Code::kInternal});
      std::lock_guard lock(mutex_);
      ModelTimes& times = state_.times[model];
      times.loaded_ns[files.version] = net::NowNs();
      times.parents[files.version] = files.parent;
      ++times.loads;
    }
    std::lock_guard lock(mutex_);
    state_.times[model].load_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    state_.records[model].erase(version);
  } catch (const std::exception& e) {
    const auto* error = dynamic_cast<const Error*>(&e);
    Code code = error != nullptr ? error->code() : Code::kInternal;
    {
      std::lock_guard lock(mutex_);
      ++state_.times[model].failures;
      // Parents still marked as loading failed with this version: its record has the reason.
      for (auto it = state_.records[model].begin(); it != state_.records[model].end();) {
        it = it->second.state == LoadState::kLoading && it->first != version && it->first < version
                 ? state_.records[model].erase(it)
                 : std::next(it);
      }
    }
    Record(model, version, {LoadState::kFailed, e.what(), code});
    throw;
  }
}

void Control::Record(const std::string& model, uint64_t version, LoadRecord record) {
  std::lock_guard lock(mutex_);
  auto& records = state_.records[model];
  if (record.state == LoadState::kReady) {
    records.erase(version);
    return;
  }
  records[version] = std::move(record);
  while (records.size() > kMaxFailed && records.begin()->second.state == LoadState::kFailed)
    records.erase(records.begin());
}

bool Control::IsResident(const std::string& model, uint64_t version, const std::string& identity) const {
  std::shared_ptr<const Catalog> catalog = store_->current();
  const ModelEntry* entry = FindModel(*catalog, model);
  if (entry == nullptr) return false;
  const auto is_it = [&](const auto& v) {
    return v->version == version && MayBeSame(v->identity, identity) && v->Damage().empty();
  };
  return (entry->next != nullptr && is_it(entry->next)) ||
         std::any_of(entry->versions.begin(), entry->versions.end(), is_it);
}

bool Control::IsLoaded(const std::string& model, uint64_t version) const {
  std::string identity;
  try {
    identity = directory_.Read(model, version).identity;
  } catch (const Error&) {
    // A resident version does not need its files.
    if (IsResident(model, version, "")) return true;
    throw;
  }
  return IsResident(model, version, identity);
}

bool Control::HasVersion(const std::string& model, uint64_t version) const {
  std::shared_ptr<const Catalog> catalog = store_->current();
  const ModelEntry* entry = FindModel(*catalog, model);
  return entry != nullptr && std::any_of(entry->versions.begin(), entry->versions.end(),
                                         [&](const auto& v) { return v->version == version; });
}

Live Control::Activate(const std::string& model, uint64_t version) { return ActivateInStore(model, version, true); }

Live Control::ActivateInStore(const std::string& model, uint64_t version, bool writes_live) {
  std::lock_guard one_at_a_time(activate_mutex_);
  if (!IsResident(model, version, ""))
    throw Error(Code::kNotFound, Named(model, version) + " is not loaded; load it first");
  std::shared_ptr<const Catalog> before = store_->current();
  const ModelEntry* entry = FindModel(*before, model);
  Live live{version, entry->active == version ? entry->previous : entry->active};
  if (writes_live) directory_.WriteLive(model, live);
  store_->Activate(model, version);
  before.reset();
  on_change_();
  std::lock_guard lock(mutex_);
  state_.times[model].activated_ns = net::NowNs();
  state_.broken.erase(model);
  return live;
}

void Control::Retire(const std::string& model, uint64_t version) {
  std::lock_guard one_at_a_time(activate_mutex_);
  bool was_resident = HasVersion(model, version);
  if (was_resident) store_->Retire(model, version);
  on_change_();
  std::shared_ptr<const Catalog> catalog = store_->current();
  std::lock_guard lock(mutex_);
  bool was_recorded = state_.records[model].erase(version) != 0;
  state_.times[model].loaded_ns.erase(version);
  ForgetOld(*catalog, model);
  if (!was_resident && !was_recorded) throw Error(Code::kNotFound, Named(model, version) + " is not loaded");
}

void Control::ForgetOld(const Catalog& catalog, const std::string& model) {
  std::map<uint64_t, uint64_t>& parents = state_.times[model].parents;
  std::map<uint64_t, uint64_t> needed;
  if (const ModelEntry* entry = FindModel(catalog, model)) {
    for (const auto& version : entry->versions) {
      for (auto it = parents.find(version->version); it != parents.end() && needed.insert(*it).second;) {
        it = parents.find(it->second);
      }
    }
  }
  parents.swap(needed);
}

bool Control::is_ready() const {
  std::shared_ptr<const Catalog> catalog = store_->current();
  std::lock_guard lock(mutex_);
  if (!state_.has_started || !state_.broken.empty() || catalog->models().empty()) return false;
  return std::all_of(catalog->models().begin(), catalog->models().end(), [](const ModelEntry& m) {
    return std::any_of(m.versions.begin(), m.versions.end(),
                       [&](const auto& v) { return v->version == m.active && v->Damage().empty(); });
  });
}

ControlState Control::state() const {
  std::lock_guard lock(mutex_);
  return state_;
}

}  // namespace elasticctr::cube
