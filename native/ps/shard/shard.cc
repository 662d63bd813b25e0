#include "ps/shard/shard.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "ps/server/refusal.h"
#include "ps/shard/state.h"
#include "table/buffer.h"
#include "util/coding.h"
#include "util/hash.h"
#include "util/json_text.h"
#include "util/status.h"
#include "util/target.h"

namespace elasticctr::ps {
namespace {

bool CountsOccurrences(const AdmissionSettings& admission) {
  return admission.count > 1 || admission.probability < 1.0;
}

size_t PartFloats(const Share& share) { return share.last_float - share.first_float; }

ELASTICCTR_CLONES bool AreOf(const uint64_t* feasigns, size_t count, uint32_t first, uint32_t last) {
  uint32_t bad = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bucket = BucketOf(feasigns[i]);
    bad |= static_cast<uint32_t>(bucket - first >= last - first);
  }
  return bad == 0;
}

// Table, count, feasigns, occurrences: the arguments of InsertRows.
std::vector<uint8_t> InsertBody(uint32_t table, std::span<const uint64_t> feasigns,
                                const std::vector<uint32_t>& occurrences) {
  std::vector<uint8_t> body(8 + feasigns.size() * 12);
  EncodeFixed32(body.data(), table);
  EncodeFixed32(body.data() + 4, static_cast<uint32_t>(feasigns.size()));
  std::memcpy(body.data() + 8, feasigns.data(), feasigns.size_bytes());
  std::memcpy(body.data() + 8 + feasigns.size_bytes(), occurrences.data(), occurrences.size() * sizeof(uint32_t));
  return body;
}

std::span<const uint8_t> BytesOf(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

std::span<const uint64_t> Feasigns(const uint64_t* feasigns, size_t count, std::vector<uint64_t>* scratch) {
  if (reinterpret_cast<uintptr_t>(feasigns) % alignof(uint64_t) == 0) return {feasigns, count};
  scratch->resize(count);
  std::memcpy(scratch->data(), feasigns, count * sizeof(uint64_t));
  return *scratch;
}

void CheckBuckets(std::span<const uint64_t> feasigns, const Share& share) {
  if (AreOf(feasigns.data(), feasigns.size(), share.first_bucket, share.last_bucket)) return;
  throw Refusal(Code::kFailedPrecondition, Detail::kWrongShard,
                "a feasign of another shard; check the order and number of pservers the sender knows");
}

Shard::State::State(const ShardSettings& given)
    : settings(given),
      share(ShareOf(given.shard, given.shards, given.dense_floats, given.dense_on_first)),
      dense(given.dense_optimizer, PartFloats(share)) {
  for (const TableSettings& table : settings.tables) {
    tables.push_back(std::make_unique<Table>(table));
    shapes.push_back({tables.back()->layout().weights_dim(), CountsOccurrences(table.admission)});
  }
}

Shard::Shard(const ShardSettings& settings) {
  if (settings.shards == 0 || settings.shards > kBuckets || settings.shard >= settings.shards) {
    throw Error(Code::kConfig, "pserver " + std::to_string(settings.shard) + " of " + std::to_string(settings.shards) +
                                   " cannot be; there are 1 to " + std::to_string(kBuckets));
  }
  if (settings.dense_optimizer.clip_norm > 0.0f && settings.shards > 1 && !settings.dense_on_first) {
    throw Error(Code::kConfig, "a norm to clip by is that of the whole dense vector: it stays on pserver 0");
  }
  state_ = std::make_unique<State>(settings);
  state_->watcher = std::thread([state = state_.get()] { state->WatchDeadlines(); });
}

Shard::~Shard() {
  {
    std::lock_guard lock(state_->order);
    state_->stopping = true;
  }
  state_->deadlines.notify_all();
  state_->watcher.join();
}

const ShardSettings& Shard::settings() const { return state_->settings; }
std::span<const TableShape> Shard::shapes() const { return state_->shapes; }
const Share& Shard::share() const { return state_->share; }
uint64_t Shard::step() const { return state_->step.load(std::memory_order_relaxed); }
uint64_t Shard::era() const { return state_->era.load(std::memory_order_relaxed); }
void Shard::CheckEra(uint64_t era) { state_->CheckEra(era); }

void Shard::State::CheckEra(uint64_t asked) {
  const uint64_t own = era.load(std::memory_order_relaxed);
  if (asked == own) return;
  if (asked > own) {
    throw Refusal(Code::kUnavailable, Detail::kNotPrimary,
                  "this pserver has not gone back to the checkpoint yet: it is in era " + std::to_string(own) +
                      ", the request of " + std::to_string(asked));
  }
  counts.old_era.fetch_add(1, std::memory_order_relaxed);
  throw EraError("work of era " + std::to_string(asked) + ", but the job went back to a checkpoint and is in era " +
                     std::to_string(own) + "; drop what is under way and ask the coordinator for work",
                 own);
}

size_t Shard::PullAnswerBytes(const PullRequest& request) const {
  size_t bytes = kPullAnswerHead;
  for (const PullTable& table : request.tables) {
    bytes += table.count * EncodedBytes(request.encoding, state_->shapes[table.number].dim);
  }
  if ((request.flags & kPullDense) != 0) bytes += PartFloats(state_->share) * sizeof(float);
  return bytes;
}

uint64_t Shard::State::Insert(uint32_t table, const std::vector<uint64_t>& feasigns,
                              const std::vector<uint32_t>& occurrences, uint64_t era, float* weights) {
  std::lock_guard lock(order);
  CheckEra(era);
  tables[table]->InsertRows(feasigns, occurrences.data(), weights);
  counts.inserted.fetch_add(feasigns.size(), std::memory_order_relaxed);
  return IsWatched() ? Log(Opcode::kInsert, InsertBody(table, feasigns, occurrences)) : 0;
}

PullResult Shard::Pull(const PullRequest& request, uint8_t* out, FoundRows* found) {
  thread_local std::vector<uint64_t> aligned, strangers;
  thread_local std::vector<uint32_t> missing, occurrences;
  thread_local Buffer<float> scratch, fresh;
  state_->CheckEra(request.era);
  PullResult result;
  uint8_t* at = out + kPullAnswerHead;
  const bool is_noted = found != nullptr && (request.flags & kPullInserts) != 0;
  if (is_noted) found->Begin();
  for (const PullTable& table : request.tables) {
    Table& rows = *state_->tables[table.number];
    const size_t dim = rows.layout().weights_dim();
    const auto feasigns = Feasigns(table.feasigns, table.count, &aligned);
    CheckBuckets(feasigns, state_->share);
    const bool is_direct = request.encoding == Encoding::kFp32 && reinterpret_cast<uintptr_t>(at) % alignof(float) == 0;
    float* weights = is_direct ? reinterpret_cast<float*>(at) : scratch.Reserve(table.count * dim);
    missing.clear();
    uint32_t* const numbers = is_noted ? found->Add(table) : nullptr;
    const uint64_t generation = rows.PullRows(feasigns, weights, &missing, numbers);
    if (numbers != nullptr) found->SetGeneration(generation);
    if ((request.flags & kPullInserts) != 0 && !missing.empty()) {
      strangers.clear();
      occurrences.clear();
      for (const uint32_t i : missing) {
        strangers.push_back(feasigns[i]);
        const auto* bytes = reinterpret_cast<const uint8_t*>(table.occurrences);
        occurrences.push_back(bytes == nullptr ? 1 : DecodeFixed32(bytes + i * sizeof(uint32_t)));
      }
      float* const inserted = fresh.Reserve(missing.size() * dim);
      const uint64_t place = state_->Insert(table.number, strangers, occurrences, request.era, inserted);
      if (place != 0) result.place = place;
      for (size_t k = 0; k < missing.size(); ++k) {
        std::memcpy(weights + missing[k] * dim, inserted + k * dim, dim * sizeof(float));
      }
    }
    if (!is_direct) EncodeRows(request.encoding, weights, table.count, dim, at);
    at += table.count * EncodedBytes(request.encoding, dim);
    state_->counts.pulled_rows.fetch_add(table.count, std::memory_order_relaxed);
  }
  uint64_t version;
  uint32_t floats = 0;
  {
    std::shared_lock reading(state_->dense_mutex);
    version = state_->dense.version();
    if ((request.flags & kPullDense) != 0 && version != 0 && version != request.dense_version) {
      const auto values = state_->dense.values();
      floats = static_cast<uint32_t>(values.size());
      std::memcpy(at, values.data(), values.size_bytes());
      at += values.size_bytes();
    }
  }
  EncodeFixed64(out, step());
  EncodeFixed64(out + 8, version);
  EncodeFixed32(out + 16, floats);
  EncodeFixed32(out + 20, 0);
  state_->counts.pulls.fetch_add(1, std::memory_order_relaxed);
  result.bytes = static_cast<size_t>(at - out);
  return result;
}

std::vector<uint32_t> Shard::Cursors(std::span<const uint64_t> chunks) const {
  std::vector<uint32_t> cursors;
  std::lock_guard lock(state_->order);
  for (const uint64_t chunk : chunks) cursors.push_back(state_->cursors.Get(chunk));
  return cursors;
}

void Shard::ForgetChunks(uint64_t below) {
  std::lock_guard lock(state_->order);
  state_->cursors.Forget(below);
  state_->Log(Opcode::kControl, BytesOf("{\"op\": \"forget\", \"below\": " + std::to_string(below) + "}"));
}

bool Shard::SetDense(uint64_t first, std::span<const float> values) {
  const Share& share = state_->share;
  if (first != share.first_float || values.size() != PartFloats(share)) {
    throw Error(Code::kFailedPrecondition,
                "floats " + std::to_string(first) + " to " + std::to_string(first + values.size()) +
                    " are not this pserver's, which holds " + std::to_string(share.first_float) + " to " +
                    std::to_string(share.last_float));
  }
  if (!AreFinite(Encoding::kFp32, reinterpret_cast<const uint8_t*>(values.data()), 1, values.size())) {
    throw Error(Code::kData, "dense values that are not finite");
  }
  std::lock_guard lock(state_->order);
  {
    std::unique_lock writing(state_->dense_mutex);
    if (state_->dense.has_values()) return false;
    state_->dense.Set(values);
  }
  if (!state_->IsWatched()) return true;
  std::vector<uint8_t> body(8 + values.size_bytes());
  EncodeFixed64(body.data(), first);
  std::memcpy(body.data() + 8, values.data(), values.size_bytes());
  state_->Log(Opcode::kSetDense, body);
  return true;
}

uint64_t Shard::CopyDense(float* out) const {
  std::shared_lock reading(state_->dense_mutex);
  const auto values = state_->dense.values();
  if (out != nullptr) std::copy(values.begin(), values.end(), out);
  return state_->dense.version();
}

void Shard::Decay(float rate) {
  std::lock_guard lock(state_->order);
  for (auto& table : state_->tables) {
    if (table->layout().has_counters()) table->Decay(rate);
  }
  std::string text = "{\"op\": \"decay\", \"rate\": ";
  AppendFloat(&text, rate);
  state_->Log(Opcode::kControl, BytesOf(text + "}"));
}

uint64_t Shard::Evict(const EvictRule& rule) {
  uint64_t dropped = 0;
  std::lock_guard lock(state_->order);
  for (auto& table : state_->tables) {
    if (table->layout().has_counters()) dropped += table->Evict(rule);
  }
  std::string text = "{\"op\": \"evict\", \"show_weight\": ";
  AppendFloat(&text, rule.show_weight);
  text += ", \"click_weight\": ";
  AppendFloat(&text, rule.click_weight);
  text += ", \"min_score\": ";
  AppendFloat(&text, rule.min_score);
  state_->Log(Opcode::kControl, BytesOf(text + ", \"oldest\": " + std::to_string(rule.oldest) + "}"));
  return dropped;
}

void Shard::SetObserver(Observer* observer) {
  std::lock_guard lock(state_->order);
  state_->observer = observer;
}

uint64_t Shard::State::Log(Opcode opcode, std::span<const uint8_t> body) {
  if (!IsWatched()) return 0;
  last_place = observer->OnChange({opcode, body});
  return last_place;
}

// Never waits for a save or a load, which may take minutes; some numbers are then outdated.
ShardStats Shard::GetStats() const {
  const auto& counts = state_->counts;
  std::unique_lock lock(state_->order, std::try_to_lock);
  if (!lock.owns_lock() && !state_->is_loading.load()) {
    // A push takes a moment, a save minutes.
    for (int i = 0; i < 50 && !lock.owns_lock(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      lock.try_lock();
    }
  }
  std::lock_guard seen_lock(state_->seen_mutex);
  ShardStats& stats = state_->seen;
  if (lock.owns_lock()) {
    stats.waiting = state_->waiting.size();
    stats.group = state_->group.size();
    stats.rounds = state_->rounds;
    stats.missing.clear();
    if (stats.waiting != 0) {
      const auto missing = state_->Missing();
      stats.missing.assign(missing.begin(), missing.end());
    }
    stats.chunks = state_->cursors.size();
    stats.dense_version = state_->dense.version();
    stats.has_dense = state_->dense.has_values();
    state_->CountRows(&stats);
  } else if (!state_->is_loading.load()) {
    state_->CountRows(&stats);
  }
  stats.pulls = counts.pulls;
  stats.pushes = counts.pushes;
  stats.pulled_rows = counts.pulled_rows;
  stats.pushed_rows = counts.pushed_rows;
  stats.inserted = counts.inserted;
  stats.applied_before = counts.applied_before;
  stats.not_finite = counts.not_finite;
  stats.late = counts.late;
  stats.old_era = counts.old_era;
  stats.steps = step();
  return stats;
}

void Shard::State::CountRows(ShardStats* stats) const {
  stats->rows = stats->row_bytes = stats->table_bytes = stats->pending = 0;
  for (const auto& table : tables) {
    const TableStats of = table->GetStats();
    stats->rows += of.rows;
    stats->row_bytes += of.row_bytes;
    stats->table_bytes += of.row_bytes + of.index_bytes + of.pending_bytes + of.mark_bytes;
    stats->pending += of.pending;
  }
}

}  // namespace elasticctr::ps
