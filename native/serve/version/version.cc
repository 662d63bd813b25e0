#include "serve/version/version.h"

#include <algorithm>
#include <cstring>

#include "net/socket.h"
#include "serve/onnx/shared_layer.h"
#include "serve/version/pooling.h"

namespace elasticctr::serve {
namespace {

// Discards the buffer's contents; it never shrinks.
template <typename T>
T* Room(std::vector<T>* buffer, size_t count) {
  if (buffer->size() < count) buffer->resize(std::max(count, 2 * buffer->size()));
  return buffer->data();
}

struct SequenceSlot {
  uint32_t slot;
  const SparsePlan* plan;
  uint32_t stride;
};

}  // namespace

struct Workspace::Buffers {
  struct Table {
    std::vector<uint64_t> feasigns;
    std::vector<float> rows;
    std::vector<uint8_t> found;
  };
  struct Sequence {
    std::vector<float> values;
    std::vector<int64_t> lengths;
  };
  std::vector<Table> tables;
  std::vector<RowSource::Table> asked;
  std::vector<const float*> slot_rows;  // per sparse slot, the rows of its values
  std::vector<const uint8_t*> slot_found;
  std::vector<float> pooled, dense;
  std::vector<Sequence> sequences;
  std::vector<float> memo;
  std::vector<DenseGraph::Input> inputs;
  RowSource::Trouble trouble;
  SharedLayer::Scratch shared;
};

SharedLayerResult::SharedLayerResult(std::unique_ptr<SharedLayer> layer, std::string why_not)
    : layer(std::move(layer)), why_not(std::move(why_not)) {}
SharedLayerResult::SharedLayerResult(std::string why_not) : SharedLayerResult(nullptr, std::move(why_not)) {}
SharedLayerResult::SharedLayerResult(SharedLayerResult&&) noexcept = default;
SharedLayerResult::~SharedLayerResult() = default;

Workspace::Workspace() : buffers_(std::make_unique<Buffers>()) {}
Workspace::~Workspace() = default;

struct ServedVersion::Parts {
  std::string model;
  uint64_t version;
  Plan plan;
  std::shared_ptr<const RowSource> rows;
  std::unique_ptr<DenseGraph> graph;
  Policy policy;
  SharedLayerResult shared;

  std::vector<std::vector<uint32_t>> slots_of = {};   // per table
  std::vector<std::vector<uint32_t>> oov_slots = {};  // per table: those with a row for values without one
  std::vector<PooledSlot> pooled = {};
  std::vector<SequenceSlot> sequences = {};
  bool pools_every_column = false;
  bool is_dense_in_order = false;

  void Prepare();
  void LookUp(const Samples& samples, Workspace::Buffers* buffers, uint64_t deadline_ns) const;
  void FillUnknown(const Samples& samples, size_t table, Workspace::Buffers* buffers) const;
  void Count(const Samples& samples, const Workspace::Buffers& buffers, std::vector<Coverage>* coverage) const;
  // The inputs that `reader` reads; null: all.
  void MakeInputs(const Samples& samples, const float* dense, const SharedLayer* reader,
                  Workspace::Buffers* buffers) const;
  const float* ArrangeDense(const Samples& samples, Workspace::Buffers* buffers) const;
};

void ServedVersion::Parts::Prepare() {
  slots_of.resize(plan.tables.size());
  oov_slots.resize(plan.tables.size());
  std::vector<bool> is_pooled(plan.pooled_width);
  for (uint32_t i = 0; i < plan.sparse.size(); ++i) {
    const SparsePlan& slot = plan.sparse[i];
    if (slot.table == SparsePlan::kUnused) continue;
    slots_of[slot.table].push_back(i);
    if (slot.oov) oov_slots[slot.table].push_back(i);
    const uint32_t stride = plan.tables[slot.table].dim;
    if (slot.pooling == Pooling::kNone) {
      sequences.push_back({i, &slot, stride});
      continue;
    }
    pooled.push_back({i, stride, slot.pooling == Pooling::kMean, slot.pieces});
    for (const Piece& piece : slot.pieces) {
      std::fill_n(is_pooled.begin() + piece.column, piece.dim, true);
    }
  }
  pools_every_column = std::find(is_pooled.begin(), is_pooled.end(), false) == is_pooled.end();
  uint32_t offset = 0;
  is_dense_in_order = true;
  for (size_t i = 0; i < plan.spec.dense.size(); ++i) {
    is_dense_in_order = is_dense_in_order && plan.dense_columns[i] == offset;
    offset += plan.spec.dense[i].dim;
  }
  is_dense_in_order = is_dense_in_order && offset == plan.dense_width;
}

void ServedVersion::Parts::LookUp(const Samples& samples, Workspace::Buffers* buffers, uint64_t deadline_ns) const {
  const size_t tables = plan.tables.size();
  if (buffers->tables.size() < tables) buffers->tables.resize(tables);
  Room(&buffers->slot_rows, plan.sparse.size());
  Room(&buffers->slot_found, plan.sparse.size());
  buffers->asked.clear();
  for (size_t t = 0; t < tables; ++t) {
    Workspace::Buffers::Table& table = buffers->tables[t];
    size_t count = oov_slots[t].size();
    for (const uint32_t slot : slots_of[t]) count += samples.value_count(slot);
    uint64_t* feasigns = Room(&table.feasigns, count);
    float* rows = Room(&table.rows, count * plan.tables[t].dim);
    uint8_t* found = Room(&table.found, count);
    buffers->asked.push_back({feasigns, count, rows, found});
    for (const uint32_t slot : slots_of[t]) {
      const size_t values = samples.value_count(slot);
      if (values > 0) std::memcpy(feasigns, samples.values(slot), values * sizeof(uint64_t));
      buffers->slot_rows[slot] = rows;
      buffers->slot_found[slot] = found;
      feasigns += values;
      rows += values * plan.tables[t].dim;
      found += values;
    }
    for (const uint32_t slot : oov_slots[t]) *feasigns++ = *plan.sparse[slot].oov;
  }
  buffers->trouble.dead_shards.clear();
  buffers->trouble.late = false;
  if (tables > 0) rows->LookUp(buffers->asked.data(), tables, deadline_ns, &buffers->trouble);
  for (size_t t = 0; t < tables; ++t) FillUnknown(samples, t, buffers);
}

// Values without a row read as their slot's substitute row, which was requested after all others.
void ServedVersion::Parts::FillUnknown(const Samples& samples, size_t t, Workspace::Buffers* buffers) const {
  const RowSource::Table& asked = buffers->asked[t];
  if (oov_slots[t].empty() || asked.hits == asked.count) return;
  const size_t dim = plan.tables[t].dim, first = asked.count - oov_slots[t].size();
  for (size_t k = 0; k < oov_slots[t].size(); ++k) {
    if (!asked.found[first + k]) continue;
    const uint32_t slot = oov_slots[t][k];
    const size_t start = static_cast<size_t>(buffers->slot_rows[slot] - asked.rows) / dim;
    for (size_t i = start; i < start + samples.value_count(slot); ++i) {
      if (!asked.found[i]) std::copy_n(asked.rows + (first + k) * dim, dim, asked.rows + i * dim);
    }
  }
}

void ServedVersion::Parts::Count(const Samples& samples, const Workspace::Buffers& buffers,
                                 std::vector<Coverage>* coverage) const {
  coverage->resize(samples.requests());
  for (size_t r = 0; r < samples.requests(); ++r) {
    const uint32_t *first = samples.first_values(r), *end = samples.first_values(r + 1);
    uint64_t asked = 0, found = 0;
    for (size_t t = 0; t < slots_of.size(); ++t) {
      const bool is_whole = buffers.asked[t].hits == buffers.asked[t].count;
      for (const uint32_t slot : slots_of[t]) {
        asked += end[slot] - first[slot];
        if (is_whole) continue;
        for (uint32_t i = first[slot]; i < end[slot]; ++i) found += buffers.slot_found[slot][i];
      }
      if (is_whole) {
        for (const uint32_t slot : slots_of[t]) found += end[slot] - first[slot];
      }
    }
    Coverage& one = (*coverage)[r];
    one.asked = asked;
    one.found = found;
    one.dead_shards = buffers.trouble.dead_shards;
    one.late = buffers.trouble.late;
    // Without a single row the answer is degraded under every policy: the scores belong to no user. A dead shard was
    // reported already.
    const bool has_none = found == 0 && !one.late && one.dead_shards.empty();
    const double needed = policy.min_coverage * static_cast<double>(asked);
    one.is_below = asked > 0 && (has_none || static_cast<double>(found) < needed);
  }
}

const float* ServedVersion::Parts::ArrangeDense(const Samples& samples, Workspace::Buffers* buffers) const {
  if (is_dense_in_order) return samples.dense(0);
  const size_t n = samples.size();
  float* out = Room(&buffers->dense, n * plan.dense_width);
  std::fill_n(out, n * plan.dense_width, 0.0f);
  for (size_t i = 0; i < n; ++i) {
    const float* from = samples.dense(i);
    for (size_t k = 0; k < plan.spec.dense.size(); ++k) {
      std::copy_n(from, plan.spec.dense[k].dim, out + i * plan.dense_width + plan.dense_columns[k]);
      from += plan.spec.dense[k].dim;
    }
  }
  return out;
}

void ServedVersion::Parts::MakeInputs(const Samples& samples, const float* dense, const SharedLayer* reader,
                                      Workspace::Buffers* buffers) const {
  const size_t n = samples.size();
  const auto count = static_cast<int64_t>(n);
  const auto is_read = [reader](const char* input) { return reader == nullptr || reader->Reads(input); };
  buffers->inputs.clear();
  if (plan.pooled_width > 0 && is_read("pooled")) {
    float* out = Room(&buffers->pooled, n * plan.pooled_width);
    if (!pools_every_column) std::fill_n(out, n * plan.pooled_width, 0.0f);
    PoolSamples(samples, pooled, buffers->slot_rows.data(), plan.pooled_width, &buffers->memo, out);
    buffers->inputs.push_back({"pooled", out, false, 2, {count, plan.pooled_width}});
  }
  if (plan.dense_width > 0 && is_read("dense")) {
    buffers->inputs.push_back({"dense", dense, false, 2, {count, plan.dense_width}});
  }
  if (buffers->sequences.size() < sequences.size()) buffers->sequences.resize(sequences.size());
  for (size_t k = 0; k < sequences.size(); ++k) {
    const auto& [slot, of, stride] = sequences[k];
    if (!is_read(of->input.c_str()) && !is_read(of->lengths.c_str())) continue;
    float* values = Room(&buffers->sequences[k].values, n * of->max_values * of->dim);
    int64_t* lengths = Room(&buffers->sequences[k].lengths, n);
    FillSequence(samples, slot, *of, stride, buffers->slot_rows[slot], values, lengths);
    if (is_read(of->input.c_str())) {
      buffers->inputs.push_back({of->input.c_str(), values, false, 3, {count, of->max_values, of->dim}});
    }
    if (is_read(of->lengths.c_str())) buffers->inputs.push_back({of->lengths.c_str(), lengths, true, 1, {count}});
  }
}

ServedVersion::ServedVersion(std::string model, uint64_t version, Plan plan, std::shared_ptr<const RowSource> rows,
                             std::unique_ptr<DenseGraph> graph, Policy policy, SharedLayerResult shared)
    : parts_(new Parts{std::move(model), version, std::move(plan), std::move(rows), std::move(graph), policy,
                       std::move(shared)}) {
  if (parts_->plan.number == 0) parts_->plan.Seal();
  parts_->Prepare();
}

ServedVersion::~ServedVersion() = default;

const std::string& ServedVersion::model() const { return parts_->model; }
uint64_t ServedVersion::version() const { return parts_->version; }
const Plan& ServedVersion::plan() const { return parts_->plan; }
const Policy& ServedVersion::policy() const { return parts_->policy; }
const std::string& ServedVersion::why_whole() const { return parts_->shared.why_not; }
bool ServedVersion::is_remote() const { return parts_->rows->is_remote(); }

void ServedVersion::Score(const Samples& samples, Workspace* workspace, uint64_t deadline_ns, Result* result) const {
  Workspace::Buffers* buffers = workspace->buffers_.get();
  const size_t labels = parts_->plan.labels.size();
  const uint64_t start = net::NowNs();
  parts_->LookUp(samples, buffers, deadline_ns);
  const uint64_t looked_up = net::NowNs();
  parts_->Count(samples, *buffers, &result->coverage);
  result->scores.resize(samples.size() * labels);
  result->lookup_ns = looked_up - start;
  result->dense_ns = 0;
  result->is_split = false;
  if (samples.size() == 0) return;
  const float* dense = parts_->plan.dense_width > 0 ? parts_->ArrangeDense(samples, buffers) : nullptr;
  const SharedLayer* shared = parts_->shared.layer.get();
  result->is_split = shared != nullptr && shared->Choose(samples, parts_->pooled, dense, &buffers->shared);
  parts_->MakeInputs(samples, dense, result->is_split ? shared : nullptr, buffers);
  if (result->is_split) shared->Fill(samples, parts_->pooled, buffers->slot_rows.data(), dense, &buffers->shared);
  const uint64_t made = net::NowNs();
  float* scores = result->scores.data();
  if (result->is_split) {
    shared->Run(samples.size(), buffers->inputs, labels, scores, &buffers->shared);
  } else {
    parts_->graph->Run(buffers->inputs, samples.size(), labels, scores);
  }
  result->dense_ns = net::NowNs() - made;
}

}  // namespace elasticctr::serve
