// Reading and dropping rows outside of training: get, export, marks, decay, evict, erase.

#include <algorithm>
#include <mutex>
#include <unordered_set>

#include "table/table.h"
#include "util/hash.h"
#include "util/status.h"
#include "util/thread_pool.h"

namespace elasticctr {

void Table::RequireCounters(const char* what) const {
  if (!layout_.has_counters()) {
    throw Error(Code::kFailedPrecondition, "table '" + settings_.name + "' keeps no counters, which " + what +
                                               " needs; make it with counters: true");
  }
}

void Table::Get(std::span<const uint64_t> feasigns, float* weights, bool* found, Counters* counters) const {
  std::shared_lock reading(mutex_);
  constexpr size_t kBlock = 1024;
  const size_t dim = layout_.weights_dim();
  ThreadPool::Default().Run((feasigns.size() + kBlock - 1) / kBlock, [&](size_t block) {
    const size_t begin = block * kBlock;
    const size_t count = std::min(kBlock, feasigns.size() - begin);
    uint32_t rows[kBlock];
    FindRange(feasigns.data() + begin, count, rows);
    for (size_t i = 0; i < count; ++i) {
      const std::byte* row = Row(rows[i]);
      if (weights != nullptr) {
        CopyWeights(rows[i], weights + (begin + i) * dim);
      }
      if (found != nullptr) found[begin + i] = rows[i] != 0;
      if (counters != nullptr) {
        counters[begin + i] = layout_.has_counters() ? RowLayout::GetCounters(row) : Counters{};
      }
    }
  });
}

// A cursor is (shard, local row number).
uint64_t Table::Export(uint32_t first, uint32_t last, size_t limit, uint64_t cursor, std::vector<uint64_t>* feasigns,
                       std::vector<float>* weights, std::vector<Counters>* counters, const Mark* since) const {
  std::shared_lock reading(mutex_);
  if (since != nullptr) RequireKnown(*since);
  constexpr size_t kBucketsPerShard = kBuckets / kShards;
  size_t s = cursor == 0 ? first / kBucketsPerShard : cursor >> 32;
  uint32_t local = cursor == 0 ? 1 : static_cast<uint32_t>(cursor);
  for (; s < kShards && s * kBucketsPerShard < last; ++s, local = 1) {
    for (; local <= shards_[s].rows.count(); ++local) {
      const uint32_t number = shards_[s].rows.Number(local);
      if (since != nullptr && !marks_.IsAfter(StampOf(number), *since)) continue;
      const std::byte* row = Row(number);
      const uint64_t feasign = RowLayout::Key(row);
      const uint32_t bucket = BucketOf(feasign);
      if (bucket < first || bucket >= last) continue;
      if (limit-- == 0) return uint64_t{s} << 32 | local;
      feasigns->push_back(feasign);
      weights->resize(weights->size() + layout_.weights_dim());
      CopyWeights(number, weights->data() + weights->size() - layout_.weights_dim());
      counters->push_back(layout_.has_counters() ? RowLayout::GetCounters(row) : Counters{});
    }
  }
  return 0;
}

uint8_t Table::StampOf(uint32_t row) const {
  return is_touched_ && layout_.has_counters() && RowLayout::IsTouched(Row(row)) ? marks_.code() : marks_.Get(row);
}

void Table::FoldTouched() {
  if (!layout_.has_counters() || !is_touched_) return;
  is_touched_ = false;
  ThreadPool::Default().Run(kShards, [&](size_t s) {
    for (uint32_t local = 1; local <= shards_[s].rows.count(); ++local) {
      const uint32_t number = shards_[s].rows.Number(local);
      if (!RowLayout::IsTouched(Row(number))) continue;
      marks_.Stamp(number);
      RowLayout::ClearTouched(Row(number));
    }
  });
}

uint64_t Table::HashRows() const {
  std::array<uint64_t, kShards> hashes{};
  ThreadPool::Default().Run(kShards, [&](size_t s) {
    for (uint32_t local = 1; local <= shards_[s].rows.count(); ++local) {
      hashes[s] = Xxh64(Row(shards_[s], local), layout_.used_bytes(), hashes[s]);
    }
  });
  return Xxh64(hashes.data(), sizeof hashes, steps_);
}

Mark Table::SetMark(bool by_content) {
  std::unique_lock writing(mutex_);
  FoldTouched();
  const Mark mark = marks_.Next(by_content ? HashRows() : Marks::DrawId());
  for (uint64_t row = 0; row < arena_.end(); row += RowArena::kExtentRows) marks_.Ensure(static_cast<uint32_t>(row));
  DropOldMarks();
  if (marks_.epoch() <= Marks::kRemembered) return mark;
  // The stamp of the new epoch is that of the epoch 255 marks ago.
  ThreadPool::Default().Run(kShards, [&](size_t s) {
    for (uint32_t local = 1; local <= shards_[s].rows.count(); ++local) {
      const uint32_t number = shards_[s].rows.Number(local);
      if (marks_.Get(number) == marks_.code()) marks_.Put(number, Marks::kLongAgo);
    }
  });
  return mark;
}

bool Table::Knows(const Mark& mark) const {
  std::shared_lock reading(mutex_);
  return marks_.Knows(mark);
}

void Table::RequireKnown(const Mark& mark) const {
  if (!marks_.Knows(mark)) {
    throw Error(Code::kFailedPrecondition,
                "table '" + settings_.name + "': what changed since mark " + std::to_string(mark.epoch) +
                    " is not known: it is of another history of this table, or too old; take all rows");
  }
}

std::vector<uint64_t> Table::Gone(const Mark& since) const {
  std::shared_lock reading(mutex_);
  RequireKnown(since);
  std::vector<uint64_t> gone;
  for (const Shard& shard : shards_) {
    for (const auto& [feasign, epoch] : shard.gone) {
      if (epoch > since.epoch) gone.push_back(feasign);
    }
  }
  std::sort(gone.begin(), gone.end());
  return gone;
}

void Table::Forget(const Mark& mark) {
  std::unique_lock writing(mutex_);
  if (!marks_.Knows(mark)) return;
  marks_.Forget(mark);
  DropOldMarks();
}

void Table::DropOldMarks() {
  for (Shard& shard : shards_) {
    std::erase_if(shard.gone, [&](const auto& entry) { return entry.second <= marks_.oldest(); });
  }
}

void Table::Decay(float rate) {
  std::unique_lock writing(mutex_);
  RequireCounters("decay");
  if (!(rate >= 0.0f && rate <= 1.0f)) throw Error(Code::kConfig, "a decay rate is between 0 and 1");
  ThreadPool::Default().Run(kShards, [&](size_t s) {
    for (uint32_t local = 1; local <= shards_[s].rows.count(); ++local) {
      Counters* counters = RowLayout::MutableCounters(Row(shards_[s], local));
      counters->show *= rate;
      counters->click *= rate;
    }
  });
}

// Remaining rows move up, in order, so that a shard's rows are always numbered without gaps; any shard can take the
// freed extents.
template <typename Keep>
uint64_t Table::Compact(Keep&& keep) {
  std::array<uint32_t, kShards> dropped{};
  ++generation_;
  ThreadPool::Default().Run(kShards, [&](size_t s) {
    Shard& shard = shards_[s];
    uint32_t kept = 0;
    for (uint32_t local = 1; local <= shard.rows.count(); ++local) {
      const std::byte* row = Row(shard, local);
      if (!keep(s, row)) {
        if (marks_.is_on()) shard.gone[RowLayout::Key(row)] = marks_.epoch();
        continue;
      }
      if (++kept == local) continue;
      std::memcpy(Row(shard, kept), row, layout_.stride());
      if (marks_.is_on()) marks_.Put(shard.rows.Number(kept), marks_.Get(shard.rows.Number(local)));
    }
    if (kept == shard.rows.count()) return;
    dropped[s] = shard.rows.count() - kept;
    shard.rows.Truncate(kept, &arena_);
    shard.index.Rebuild(kept, KeysOf(shard));
  });
  uint64_t sum = 0;
  for (const uint32_t count : dropped) sum += count;
  return sum;
}

uint64_t Table::Evict(const EvictRule& rule) {
  std::unique_lock writing(mutex_);
  RequireCounters("evict");
  return Compact([&](size_t, const std::byte* row) {
    const Counters counters = RowLayout::GetCounters(row);
    const float score = rule.show_weight * (counters.show - counters.click) + rule.click_weight * counters.click;
    return score >= rule.min_score && counters.last_seen >= rule.oldest;
  });
}

uint64_t Table::Erase(std::span<const uint64_t> feasigns) {
  std::unique_lock writing(mutex_);
  std::array<std::unordered_set<uint64_t>, kShards> doomed;
  for (const uint64_t feasign : feasigns) doomed[ShardOfHash(Mix64(feasign))].insert(feasign);
  return Compact(
      [&](size_t s, const std::byte* row) { return doomed[s].empty() || doomed[s].count(RowLayout::Key(row)) == 0; });
}

}  // namespace elasticctr
