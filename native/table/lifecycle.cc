// Reading and dropping rows outside of training: get, export, decay, evict, erase.

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
        std::memcpy(weights + (begin + i) * dim, RowLayout::Floats(row, layout_.weights_offset()), dim * sizeof(float));
      }
      if (found != nullptr) found[begin + i] = rows[i] != 0;
      if (counters != nullptr) {
        counters[begin + i] = layout_.has_counters() ? *RowLayout::GetCounters(row) : Counters{};
      }
    }
  });
}

// A cursor is (shard, local row number).
uint64_t Table::Export(uint32_t first, uint32_t last, size_t limit, uint64_t cursor, std::vector<uint64_t>* feasigns,
                       std::vector<float>* weights, std::vector<Counters>* counters) const {
  std::shared_lock reading(mutex_);
  constexpr size_t kBucketsPerShard = kBuckets / kShards;
  size_t s = cursor == 0 ? first / kBucketsPerShard : cursor >> 32;
  uint32_t local = cursor == 0 ? 1 : static_cast<uint32_t>(cursor);
  for (; s < kShards && s * kBucketsPerShard < last; ++s, local = 1) {
    for (; local <= shards_[s].rows.count(); ++local) {
      const std::byte* row = Row(shards_[s], local);
      const uint64_t feasign = RowLayout::Key(row);
      const uint32_t bucket = BucketOf(feasign);
      if (bucket < first || bucket >= last) continue;
      if (limit-- == 0) return uint64_t{s} << 32 | local;
      const float* from = RowLayout::Floats(row, layout_.weights_offset());
      feasigns->push_back(feasign);
      weights->insert(weights->end(), from, from + layout_.weights_dim());
      counters->push_back(layout_.has_counters() ? *RowLayout::GetCounters(row) : Counters{});
    }
  }
  return 0;
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

// Rows that stay move up, in order, so that a shard's rows are always numbered without gaps; extents left over are
// taken by whichever shard grows next.
template <typename Keep>
uint64_t Table::Compact(Keep&& keep) {
  std::array<uint32_t, kShards> dropped{};
  ++generation_;
  ThreadPool::Default().Run(kShards, [&](size_t s) {
    Shard& shard = shards_[s];
    uint32_t kept = 0;
    for (uint32_t local = 1; local <= shard.rows.count(); ++local) {
      const std::byte* row = Row(shard, local);
      if (!keep(s, row)) continue;
      if (++kept != local) std::memcpy(Row(shard, kept), row, layout_.stride());
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
    const Counters* counters = RowLayout::GetCounters(row);
    const float score = rule.show_weight * (counters->show - counters->click) + rule.click_weight * counters->click;
    return score >= rule.min_score && counters->last_seen >= rule.oldest;
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
