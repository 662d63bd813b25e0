#include "cube/client/client.h"

#include <algorithm>
#include <optional>
#include <thread>

#include "util/status.h"

namespace elasticctr::cube {

using std::chrono::milliseconds;

namespace {

constexpr int kMostRounds = 3;  // of a call whose version is gone
// Finding repeats and copying rows to them costs as much as sending a third of the feasigns (40-byte rows, loopback).
constexpr size_t kWorthMerging = 3;
constexpr uint32_t kUnmerged = 31;  // calls that do not look for repeats after one that found hardly any
constexpr auto kLeastRefresh = milliseconds(10);
constexpr auto kSwitchPause = milliseconds(10);

std::string JoinNumbers(const std::vector<uint64_t>& numbers) {
  std::string text;
  for (const uint64_t n : numbers) text += (text.empty() ? "" : ", ") + std::to_string(n);
  return text;
}

std::string ModelOf(const std::string& table) { return table.substr(0, table.find('/')); }

// Failures of servers and networks may be degraded; wrong settings may not.
bool IsDegradable(Code code) {
  return code == Code::kUnavailable || code == Code::kDeadlineExceeded || code == Code::kCorruption ||
         code == Code::kInternal;
}

// Whether answers come from several versions with the requested number, or from another one than the servers described,
// whose rows the cache may hold.
bool IsMixed(std::span<const Leg> legs, uint32_t tag) {
  for (const Leg& leg : legs) {
    const uint32_t heard = leg.answer == nullptr ? 0 : leg.answer->tag();
    if (heard == 0) continue;
    if (tag != 0 && heard != tag) return true;
    tag = heard;
  }
  return false;
}

}  // namespace

struct Client::Call {
  explicit Call(Cluster& cluster) : exchange(cluster) {}

  Exchange exchange;
  std::vector<TableState*> states;
  std::vector<RowShape> shapes;
  uint32_t tag = 0;  // of the requested version, as servers described it; 0: unknown
  std::vector<std::unique_ptr<Gather>> gathers;
  std::vector<Leg> legs;
  std::vector<uint64_t> max_keys;
};

class Client::Borrowed {
 public:
  explicit Borrowed(Client& client) : client_(client) {
    const std::lock_guard lock(client.calls_mutex_);
    if (client.calls_.empty()) {
      call_ = std::make_unique<Call>(client.cluster_);
    } else {
      call_ = std::move(client.calls_.back());
      client.calls_.pop_back();
    }
  }
  ~Borrowed() {
    const std::lock_guard lock(client_.calls_mutex_);
    client_.calls_.push_back(std::move(call_));
  }
  Call& operator*() { return *call_; }

 private:
  Client& client_;
  std::unique_ptr<Call> call_;
};

Client::Client(ClientSettings settings) : cluster_(std::move(settings)), directory_(cluster_) {
  const uint64_t cache_bytes = cluster_.settings().cache_bytes;
  if (cache_bytes > 0) cache_ = std::make_unique<HotCache>(cache_bytes);
}

Client::~Client() = default;

void Client::Connect(uint32_t timeout_ms) {
  Borrowed call(*this);
  Refresh((*call).exchange, Clock::now() + milliseconds(timeout_ms), true);
  for (const std::string& name : directory_.tables()) {
    const TableState& table = *directory_.Find(name);
    RowShape shape;
    uint32_t tag;
    for (const uint64_t version : directory_.VersionsOf(table)) directory_.FindShape(table, version, &shape, &tag);
  }
}

Answer Client::Get(std::span<const TableQuery> queries, const Options& options) {
  ClientCounters& counters = cluster_.counters();
  counters.calls.fetch_add(1, std::memory_order_relaxed);
  for (const TableQuery& query : queries) {
    if (ModelOf(query.table) != ModelOf(queries[0].table)) {
      throw Error(Code::kFailedPrecondition, "one lookup asks tables of one model, not of '" +
                                                 ModelOf(queries[0].table) + "' and '" + ModelOf(query.table) + "'");
    }
  }
  Borrowed call(*this);
  const uint32_t timeout_ms = options.timeout_ms > 0 ? options.timeout_ms : cluster_.settings().timeout_ms;
  try {
    return GetOnce(*call, queries, options, Clock::now() + milliseconds(timeout_ms));
  } catch (const Error& e) {
    counters.errors[PlaceOf(e.code())].fetch_add(1);
    throw;
  }
}

Answer Client::GetOnce(Call& call, std::span<const TableQuery> queries, const Options& options,
                       Clock::time_point deadline) {
  for (int round = 0; round < kMostRounds; ++round) {
    const uint64_t version = Prepare(call, queries, options.version, deadline);
    Plan(call, queries, version);
    if (call.legs.empty()) return Finish(call, queries, version, {});
    call.exchange.Run(call.legs, deadline);
    const bool is_gone = std::any_of(call.legs.begin(), call.legs.end(), [](const Leg& leg) {
      return leg.answer == nullptr && leg.error.detail == net::wire::Detail::kNoVersion;
    });
    ModelState& model = *call.states[0]->model;
    for (const Leg& leg : call.legs) {
      if (leg.answer != nullptr) directory_.Hear(model, *leg.answered_by, leg.answer->active());
    }
    if (is_gone && options.version == 0 && round + 1 < kMostRounds) {
      cluster_.counters().versions_gone.fetch_add(1, std::memory_order_relaxed);
      Refresh(call.exchange, deadline, true);
      continue;
    }
    if (IsMixed(call.legs, call.tag)) {
      // The number is being reassigned to another version. Switching all shards takes a moment.
      cluster_.counters().versions_gone.fetch_add(1, std::memory_order_relaxed);
      const auto now = Clock::now();
      if (deadline - now < 2 * kSwitchPause) {
        throw RetryLater(queries[0].table + ": version " + std::to_string(version) +
                             " is being replaced by another of the same number; try again",
                         static_cast<uint32_t>(kSwitchPause.count()));
      }
      std::this_thread::sleep_for(kSwitchPause);
      Refresh(call.exchange, deadline, true);
      --round;
      continue;
    }
    return Finish(call, queries, version, CheckLegs(call, queries[0].table, options.degrade));
  }
  throw Error(Code::kUnavailable, queries[0].table + ": the active version changed " + std::to_string(kMostRounds) +
                                      " times during one lookup; try again");
}

uint64_t Client::Prepare(Call& call, std::span<const TableQuery> queries, uint64_t wanted, Clock::time_point deadline) {
  for (bool is_fresh = false;; is_fresh = true) {
    call.states.clear();
    call.shapes.clear();
    bool is_known = true;
    uint64_t version = wanted;
    for (const TableQuery& query : queries) {
      TableState* state = directory_.Find(query.table);
      if (state == nullptr) {
        if (is_fresh) {
          const auto tables = directory_.tables();
          std::string names;
          for (const auto& name : tables) names += (names.empty() ? "" : ", ") + name;
          throw Error(Code::kNotFound, "no server has a table '" + query.table + "'; there " +
                                           (tables.size() == 1 ? "is " : "are ") + (names.empty() ? "none" : names));
        }
        is_known = false;
        break;
      }
      if (version == 0) version = state->model->active;
      RowShape shape{};
      if (version == 0 || !directory_.FindShape(*state, version, &shape, &call.tag)) {
        if (is_fresh && version == 0) {
          throw Error(Code::kUnavailable, "no version of '" + state->model->name + "' is active yet");
        }
        if (is_fresh) {
          throw Error(Code::kNotFound, "version " + std::to_string(version) + " of " + query.table +
                                           " is on no server that answers; they have " +
                                           JoinNumbers(directory_.VersionsOf(*state)));
        }
        is_known = false;
        break;
      }
      call.states.push_back(state);
      call.shapes.push_back(shape);
    }
    if (is_known && (is_fresh || !NeedsRefresh(*call.states[0]->model))) return version;
    Refresh(call.exchange, deadline, is_known);
  }
}

bool Client::NeedsRefresh(const ModelState& model) const {
  const bool is_doubtful = model.is_doubtful.load(std::memory_order_relaxed);
  // A call answered from the cache learns nothing about new versions; one that asks the servers does.
  if (!is_doubtful && cache_ == nullptr) return false;
  const auto now = Clock::now().time_since_epoch();
  const auto limit = milliseconds(cluster_.settings().refresh_ms);
  if (is_doubtful && now - model.settled_at.load(std::memory_order_relaxed) > limit) return true;
  return cache_ != nullptr && now - model.heard_at.load(std::memory_order_relaxed) > limit;
}

void Client::Plan(Call& call, std::span<const TableQuery> queries, uint64_t version) {
  call.legs.clear();
  call.max_keys.clear();
  for (uint32_t s = 0; s < cluster_.shards(); ++s) {
    uint64_t most = net::wire::kMaxKeys;
    for (size_t k = 0; k < cluster_.shard(s).size(); ++k) most = std::min(most, cluster_.shard(s)[k].max_keys());
    call.max_keys.push_back(most);
  }
  while (call.gathers.size() < queries.size()) call.gathers.push_back(std::make_unique<Gather>());
  for (size_t i = 0; i < queries.size(); ++i) {
    TableState& table = *call.states[i];
    const uint32_t wait = table.unmerged_calls.load(std::memory_order_relaxed);
    if (wait > 0) table.unmerged_calls.store(wait - 1, std::memory_order_relaxed);
    // Rows of a version that was replaced under its number are not found again.
    const uint64_t cached_as = table.hash + table.model->replacements.load(std::memory_order_relaxed);
    const Gather::Ask ask{queries[i].feasigns, queries[i].count, table.hash,   version,
                          call.shapes[i],      wait == 0,        cache_.get(), cached_as};
    call.gathers[i]->Plan(ask, call.max_keys, &call.legs);
    if (wait == 0 && call.gathers[i]->repeats() < queries[i].count / kWorthMerging) {
      table.unmerged_calls.store(kUnmerged, std::memory_order_relaxed);
    }
  }
}

std::vector<uint32_t> Client::CheckLegs(const Call& call, const std::string& what, bool degrade) const {
  std::vector<uint32_t> shards;
  const Leg* worst = nullptr;
  std::string messages;
  uint32_t retry_after_ms = 0;
  for (const Leg& leg : call.legs) {
    if (leg.answer != nullptr) continue;
    if (std::find(shards.begin(), shards.end(), leg.shard) == shards.end()) {
      shards.push_back(leg.shard);
      messages += (messages.empty() ? "" : "; ") + leg.error.message;
    }
    if (worst == nullptr || (IsDegradable(worst->error.code) && !IsDegradable(leg.error.code))) worst = &leg;
    retry_after_ms = std::max(retry_after_ms, leg.error.retry_after_ms);
  }
  std::sort(shards.begin(), shards.end());
  if (worst == nullptr || (degrade && IsDegradable(worst->error.code))) return shards;
  if (worst->error.code == Code::kUnavailable && retry_after_ms > 0) {
    throw RetryLater(what + ": " + messages, retry_after_ms);
  }
  throw Error(worst->error.code, what + ": " + messages);
}

Answer Client::Finish(Call& call, std::span<const TableQuery> queries, uint64_t version,
                      std::vector<uint32_t> degraded) {
  ClientCounters& counters = cluster_.counters();
  Answer answer{version, std::move(degraded), {}};
  const auto add = [](std::atomic<uint64_t>& counter, uint64_t n) {
    if (n > 0) counter.fetch_add(n, std::memory_order_relaxed);
  };
  for (size_t i = 0; i < queries.size(); ++i) {
    Gather& gather = *call.gathers[i];
    gather.Collect(call.legs);
    add(counters.keys, queries[i].count);
    add(counters.sent_keys, gather.sent());
    add(counters.repeated, gather.repeats());
    add(counters.missing, gather.missing());
    add(counters.degraded_keys, gather.unanswered());
    if (cache_ != nullptr) {
      add(counters.cache_hits, gather.hits());
      add(counters.cache_misses, gather.sent());
    }
    answer.tables.push_back({call.shapes[i], gather.TakeRows(), gather.TakeFound()});
  }
  if (!answer.degraded.empty()) counters.degraded_calls.fetch_add(1, std::memory_order_relaxed);
  return answer;
}

void Client::Refresh(Exchange& exchange, Clock::time_point deadline, bool settle) {
  const uint64_t seen = refreshes_.load();
  std::unique_lock lock(refresh_mutex_);
  if (!refreshed_.wait_until(lock, deadline, [this] { return !is_refreshing_; })) {
    throw Error(Code::kDeadlineExceeded, "no time was left to ask the servers what they hold");
  }
  if (refreshes_.load() != seen) return;  // another call did it meanwhile
  is_refreshing_ = true;
  lock.unlock();
  const auto finish = [&](uint64_t done) {
    lock.lock();
    is_refreshing_ = false;
    refreshes_.fetch_add(done);
    refreshed_.notify_all();
  };
  try {
    AskAll(exchange, deadline, settle);
  } catch (...) {
    finish(0);
    throw;
  }
  finish(1);
}

void Client::AskAll(Exchange& exchange, Clock::time_point deadline, bool settle) {
  cluster_.counters().describes.fetch_add(1, std::memory_order_relaxed);
  std::vector<Leg> legs;
  for (uint32_t s = 0; s < cluster_.shards(); ++s) {
    for (size_t k = 0; k < cluster_.shard(s).size(); ++k) {
      if (cluster_.shard(s)[k].is_ejected()) continue;
      Leg leg;
      leg.opcode = net::wire::Opcode::kDescribe;
      leg.shard = s;
      leg.replica = static_cast<int>(k);
      legs.push_back(leg);
    }
  }
  // Every replica is asked, but a hanging one does not block the call while others answer for its shard.
  const ClientSettings& settings = cluster_.settings();
  const auto patience = std::max<milliseconds>(
      milliseconds(settings.backup_ms > 0 ? settings.backup_ms : settings.timeout_ms / 4), kLeastRefresh);
  std::vector<Directory::Source> sources;
  std::vector<bool> is_heard(cluster_.shards());
  std::optional<LegError> failed;
  const auto take = [&] {
    for (Leg& leg : legs) {
      if (leg.answer == nullptr) {
        if (!failed || IsDegradable(failed->code)) failed = leg.error;
        continue;
      }
      try {
        sources.push_back({leg.answered_by, ParseReport(leg.answer->text())});
        is_heard[leg.shard] = true;
      } catch (const Error& e) {
        failed = LegError{e.code(), net::wire::Detail::kNone, 0, leg.answered_by->address() + " " + e.what()};
      }
    }
  };
  exchange.Run(legs, std::min(deadline, Clock::now() + patience));
  take();
  legs.clear();
  for (uint32_t s = 0; s < cluster_.shards(); ++s) {
    if (is_heard[s]) continue;
    Leg leg;
    leg.opcode = net::wire::Opcode::kDescribe;
    leg.shard = s;
    legs.push_back(leg);
  }
  failed.reset();
  if (!legs.empty()) {
    // Half of the remaining time: a dead shard must not use the time the others need.
    const auto now = Clock::now();
    exchange.Run(legs, sources.empty() ? deadline : now + (deadline - now) / 2);
    take();
  }
  if (failed && (sources.empty() || !IsDegradable(failed->code))) {
    if (failed->code == Code::kUnavailable && failed->retry_after_ms > 0) {
      throw RetryLater(failed->message, failed->retry_after_ms);
    }
    throw Error(failed->code, failed->message);
  }
  directory_.Update(sources, settle);
}

}  // namespace elasticctr::cube
