#include "cube/server/worker.h"

#include <algorithm>

#include "net/socket.h"
#include "util/hash.h"

namespace elasticctr::cube {

Worker::Worker(size_t loop, const Store* store, Metrics* metrics, net::Budget* budget, const ServiceLimits& limits,
               const std::atomic<bool>* is_serving)
    : loop_(loop),
      store_(store),
      metrics_(metrics),
      cells_(&metrics->loop(loop)),
      budget_(budget),
      limits_(limits),
      is_serving_(is_serving) {}

void Worker::Refresh() {
  if (!is_serving_->load(std::memory_order_acquire)) return;
  uint64_t generation = store_->generation();
  if (catalog_ != nullptr && generation == generation_) return;
  // Memory held only by the old catalog is freed here, and the cached view with it.
  has_last_ = false;
  catalog_ = store_->current();
  generation_ = generation;
  tables_.clear();
  for (const ModelEntry& model : catalog_->models()) {
    for (const auto& version : model.versions) {
      if (version->version != model.active) continue;
      for (const std::string& table : version->tables) tables_.push_back(model.name + "/" + table);
    }
  }
  std::sort(tables_.begin(), tables_.end());
  table_hashes_.clear();
  for (const std::string& name : tables_) table_hashes_.push_back(Xxh64(name.data(), name.size(), 0));
}

const Catalog* Worker::catalog() {
  if (catalog_ == nullptr || store_->generation() != generation_) Refresh();
  return catalog_.get();
}

const Worker::Target& Worker::FindHere(uint64_t table_hash, uint64_t version) {
  const Catalog* catalog = catalog_.get();
  if (has_last_ && table_hash == last_hash_ && version == last_version_) return last_;
  last_ = {};
  if (catalog != nullptr) last_.found = catalog->Find(table_hash, version);
  last_.cells = last_.found.table_known ? CellsOf(table_hash) : &cells_->no_table;
  last_hash_ = table_hash;
  last_version_ = version;
  has_last_ = catalog != nullptr;
  return last_;
}

TableCells* Worker::CellsOf(uint64_t table_hash) {
  auto found = known_.find(table_hash);
  if (found != known_.end()) return found->second;
  for (const ModelEntry& model : catalog_->models()) {
    for (const auto& version : model.versions) {
      for (const std::string& table : version->tables) {
        std::string name = model.name + "/" + table;
        if (Xxh64(name.data(), name.size(), 0) == table_hash) return known_[table_hash] = metrics_->Table(name, loop_);
      }
    }
  }
  return &cells_->no_table;
}

Miss Worker::Explain(const Catalog::Found& found, uint64_t version) const {
  // A server without versions cannot know which tables there will be.
  if (catalog_ == nullptr || catalog_->models().empty()) return Miss::kNothingActive;
  if (!found.table_known) return Miss::kNoTable;
  return version == 0 ? Miss::kNothingActive : Miss::kNoVersion;
}

void Worker::CountRequests(TableCells* cells, Speaks speaks, size_t requests, size_t keys) {
  cells->requests[static_cast<size_t>(speaks)].Add(requests);
  size_t b = 0;
  while (b < kBatchBounds.size() && static_cast<double>(keys) > kBatchBounds[b]) ++b;
  cells_->batch[b].Add(requests);
  cells_->batch_keys.Add(requests * keys);
  unanswered_ += requests;
}

void Worker::CountKeys(TableCells* cells, Speaks speaks, size_t keys, size_t hits) {
  cells->keys[static_cast<size_t>(speaks)].Add(keys);
  cells->hits.Add(hits);
  if (hits != keys) cells->misses[static_cast<size_t>(Miss::kMissing)].Add(keys - hits);
}

void Worker::CountMiss(TableCells* cells, Speaks speaks, size_t keys, Miss miss) {
  auto p = static_cast<size_t>(speaks);
  cells->requests[p].Add(1);
  cells->keys[p].Add(keys);
  cells->misses[static_cast<size_t>(miss)].Add(keys);
  ++unanswered_;
}

void Worker::OnAnswered(uint64_t received_ns) {
  if (unanswered_ == 0) return;
  uint64_t ns = net::NowNs() - received_ns;
  size_t b = 0;
  while (b < kLatencyBounds.size() && static_cast<double>(ns) > kLatencyBounds[b] * 1e9) ++b;
  cells_->latency[b].Add(unanswered_);
  cells_->latency_ns.Add(unanswered_ * ns);
  unanswered_ = 0;
}

uint8_t* Worker::Scratch(size_t bytes) {
  if (scratch_.size() * 8 < bytes + 64) scratch_.resize(bytes / 8 + 9);
  auto address = reinterpret_cast<uintptr_t>(scratch_.data());
  return reinterpret_cast<uint8_t*>((address + 63) / 64 * 64);
}

}  // namespace elasticctr::cube
