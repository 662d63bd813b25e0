#include "table/table.h"

#include <algorithm>
#include <mutex>

#include "util/hash.h"
#include "util/status.h"
#include "util/thread_pool.h"

namespace elasticctr {
namespace {

constexpr size_t kFindBlock = 512;    // feasigns per task
constexpr size_t kAhead = 32;         // concurrent searches
constexpr size_t kFewMissing = 128;   // inserted by one thread
constexpr size_t kGoneMapBytes = 40;  // approximate size of a map entry

TableSettings Checked(TableSettings settings) {
  settings.Check();
  return settings;
}

}  // namespace

Table::Table(TableSettings settings)
    : settings_(Checked(std::move(settings))), layout_(settings_), arena_(layout_.stride()) {
  for (const SegmentSettings& segment : settings_.segments) {
    optimizers_.push_back(MakeOptimizer(segment.optimizer));
    catches_up_ |= optimizers_.back()->CatchesUp();
    initializers_.emplace_back(segment.initializer, settings_.name, segment.name, settings_.seed);
  }
  Clear();
}

void Table::Clear() {
  arena_.Reset();
  for (Shard& shard : shards_) {
    shard.rows.Clear();
    shard.pending.Clear();
    shard.gone.clear();
    shard.index.Rebuild(0, KeysOf(shard));
  }
  marks_.Clear();
  is_touched_ = false;
  ++generation_;
}

uint32_t Table::FindRow(uint64_t feasign) const {
  const uint64_t hash = Mix64(feasign);
  const Shard& shard = shards_[ShardOfHash(hash)];
  return shard.rows.Number(shard.index.Find(feasign, hash, KeysOf(shard)));
}

// Three passes over a few feasigns at a time, each prefetching the memory that the next one reads.
void Table::FindRange(const uint64_t* feasigns, size_t count, uint32_t* rows) const {
  uint64_t hashes[kAhead];
  const uint32_t* lines[kAhead];
  uint32_t candidates[kAhead];
  for (size_t begin = 0; begin < count; begin += kAhead) {
    const size_t width = std::min(kAhead, count - begin);
    for (size_t i = 0; i < width; ++i) {
      hashes[i] = Mix64(feasigns[begin + i]);
      lines[i] = shards_[ShardOfHash(hashes[i])].index.Line(hashes[i]);
      __builtin_prefetch(lines[i]);
    }
    for (size_t i = 0; i < width; ++i) {
      candidates[i] = shards_[ShardOfHash(hashes[i])].rows.Number(Index::Candidate(lines[i], hashes[i]));
      __builtin_prefetch(Row(candidates[i]));
    }
    for (size_t i = 0; i < width; ++i) {
      const uint64_t feasign = feasigns[begin + i];
      const bool is_it = candidates[i] != 0 && RowLayout::Key(Row(candidates[i])) == feasign;
      rows[begin + i] = is_it ? candidates[i] : FindRow(feasign);
    }
  }
}

// Row 0 holds no feasign's weights, and row numbers of this generation all belong to existing rows.
void Table::FindKnown(const uint64_t* feasigns, const uint32_t* known, size_t count, uint32_t* rows) const {
  for (size_t i = 0; i < count; ++i) __builtin_prefetch(Row(known[i]));
  for (size_t i = 0; i < count; ++i) {
    const bool is_it = known[i] != 0 && RowLayout::Key(Row(known[i])) == feasigns[i];
    rows[i] = is_it ? known[i] : FindRow(feasigns[i]);
  }
}

void Table::Find(Lookup* lookup, bool insert) {
  std::unique_lock writing(mutex_, std::defer_lock);
  std::shared_lock reading(mutex_, std::defer_lock);
  if (insert || catches_up_) {
    writing.lock();
  } else {
    reading.lock();
  }
  if (insert) ++finds_;
  const size_t blocks = (lookup->distinct() + kFindBlock - 1) / kFindBlock;
  std::vector<std::vector<uint32_t>> missing(insert ? blocks : 0);
  ThreadPool::Default().Run(blocks, [&](size_t block) {
    const size_t begin = block * kFindBlock;
    const size_t end = std::min(begin + kFindBlock, lookup->distinct());
    FindRange(lookup->feasigns() + begin, end - begin, lookup->rows() + begin);
    for (size_t i = begin; catches_up_ && i < end; ++i) {
      if (lookup->rows()[i] != 0) CatchUp(Row(lookup->rows()[i]));
    }
    if (!insert) return;
    for (size_t i = begin; i < end; ++i) {
      if (lookup->rows()[i] == 0) missing[block].push_back(static_cast<uint32_t>(i));
    }
  });
  if (insert) InsertMissing(lookup, missing);
  lookup->SetFound(this, generation_);
}

// A task owns every kTasks-th shard and processes all missing feasigns in order, so the rows of a shard are created in
// the same order with any number of threads.
void Table::InsertMissing(Lookup* lookup, const std::vector<std::vector<uint32_t>>& missing) {
  size_t count = 0;
  for (const auto& block : missing) count += block.size();
  if (count == 0) return;
  const size_t tasks = count <= kFewMissing ? 1 : std::min<size_t>(ThreadPool::Default().size() * 2, kShards);
  ThreadPool::Default().Run(tasks, [&](size_t task) {
    for (const auto& block : missing) {
      for (const uint32_t i : block) {
        const uint64_t feasign = lookup->feasigns()[i];
        const size_t s = ShardOfHash(Mix64(feasign));
        if (s % tasks != task) continue;
        if (IsAdmitted(shards_[s], feasign, lookup->starts()[i + 1] - lookup->starts()[i])) {
          lookup->rows()[i] = AddRow(shards_[s], feasign);
        }
      }
    }
  });
}

bool Table::IsAdmitted(Shard& shard, uint64_t feasign, uint32_t occurrences) const {
  const AdmissionSettings& admission = settings_.admission;
  if (admission.count > 1) {
    return shard.pending.Count(feasign, occurrences, admission.count) >= admission.count;
  }
  if (admission.probability >= 1.0) return true;
  // One draw per occurrence, from a separate stream for every (seed, feasign, batch).
  const uint64_t stream = Mix64(Mix64(feasign ^ settings_.seed) + finds_);
  for (uint32_t k = 1; k <= occurrences; ++k) {
    const double draw = static_cast<double>(Mix64(stream + k * 0x9E3779B97F4A7C15ULL) >> 11) * 0x1p-53;
    if (draw < admission.probability) return true;
  }
  return false;
}

uint32_t Table::AddRow(Shard& shard, uint64_t feasign) {
  if (shard.rows.count() == Index::kMaxRow) {
    throw Error(Code::kInternal, "table '" + settings_.name + "': a shard is full; admit fewer feasigns or evict rows");
  }
  const uint32_t local = shard.rows.Add(&arena_);
  const uint32_t number = shard.rows.Number(local);
  std::byte* row = Row(number);
  std::memset(row, 0, layout_.stride());
  RowLayout::SetKey(row, feasign);
  for (size_t i = 0; i < optimizers_.size(); ++i) {
    const SegmentLayout& segment = layout_.segments()[i];
    float* weights = RowLayout::Floats(row, segment.weights);
    initializers_[i].Fill(feasign, weights, segment.dim);
    optimizers_[i]->Start(weights, RowLayout::Floats(row, segment.state), segment.dim, steps_);
  }
  shard.index.Add(local, KeysOf(shard));
  if (marks_.is_on()) {
    marks_.Ensure(number);
    marks_.Stamp(number);  // not the bit: all of the row is overwritten
    if (!shard.gone.empty()) shard.gone.erase(feasign);
  }
  return number;
}

void Table::CheckFound(const Lookup& lookup, const Layout& layout) const {
  if (!lookup.IsFoundIn(this, generation_)) {
    throw Error(Code::kFailedPrecondition, "table '" + settings_.name +
                                               "': the lookup's rows are not of this table or no longer valid; "
                                               "call find after evict, erase or load");
  }
  if (layout.slots().size() != lookup.slots()) {
    throw Error(Code::kFailedPrecondition, "table '" + settings_.name + "': a lookup of " +
                                               std::to_string(lookup.slots()) + " slots with a layout of " +
                                               std::to_string(layout.slots().size()));
  }
  for (size_t i = 0; i < layout.dims().size() || i < layout_.segments().size(); ++i) {
    if (layout.dims().size() != layout_.segments().size() || layout.dims()[i] != layout_.segments()[i].dim) {
      throw Error(Code::kFailedPrecondition, "table '" + settings_.name + "': the layout was made for another table");
    }
  }
}

TableStats Table::GetStats() const {
  std::shared_lock reading(mutex_);
  TableStats stats;
  for (const Shard& shard : shards_) {
    stats.rows += shard.rows.count();
    stats.index_bytes += shard.index.bytes() + shard.rows.extent_bytes();
    stats.pending += shard.pending.size();
    stats.pending_bytes += shard.pending.bytes();
    stats.mark_bytes += shard.gone.size() * kGoneMapBytes;
  }
  stats.mark_bytes += marks_.bytes();
  stats.row_bytes = stats.rows * layout_.stride();
  stats.payload_bytes = stats.rows * (layout_.weights_dim() + layout_.state_floats()) * sizeof(float);
  stats.counter_bytes = layout_.has_counters() ? stats.rows * sizeof(Counters) : 0;
  stats.steps = steps_;
  return stats;
}

}  // namespace elasticctr
