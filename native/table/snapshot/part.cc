// Table::LoadPart: the rows of some buckets of a file, added to a table.

#include <algorithm>
#include <cstring>
#include <mutex>

#include "table/snapshot/snapshot.h"
#include "util/coding.h"
#include "util/hash.h"
#include "util/thread_pool.h"

namespace elasticctr {
namespace {

constexpr uint32_t kBucketsPerShard = kBuckets / Table::kShards;

}  // namespace

void Table::Reset() {
  std::unique_lock writing(mutex_);
  Clear();
  steps_ = finds_ = 0;
}

void Table::LoadPart(const std::string& path, uint32_t first_bucket, uint32_t last_bucket) {
  std::unique_lock writing(mutex_);
  const File file = File::OpenForReading(path);
  SnapshotReader reader(this, file);
  reader.Open();
  marks_.Clear();
  is_touched_ = false;
  for (Shard& shard : shards_) shard.gone.clear();
  ForRowsThatCatchUp([this](std::byte* row) { CatchUp(row); });
  try {
    reader.ReadPart(first_bucket, last_bucket);
  } catch (...) {
    Clear();
    steps_ = finds_ = 0;
    throw;
  }
  ForRowsThatCatchUp([this](std::byte* row) { SetSteps(row); });
}

template <typename Act>
void Table::ForRowsThatCatchUp(Act&& act) const {
  if (!catches_up_) return;
  ThreadPool::Default().Run(kShards, [&](size_t s) {
    for (uint32_t local = 1; local <= shards_[s].rows.count(); ++local) act(Row(shards_[s], local));
  });
}

// Parts may have been saved at different steps: rows do not make up for the difference.
void Table::SetSteps(std::byte* row) const {
  for (size_t s = 0; s < optimizers_.size(); ++s) {
    const SegmentLayout& segment = layout_.segments()[s];
    optimizers_[s]->SetStep(RowLayout::Floats(row, segment.state), segment.dim, steps_);
  }
}

void SnapshotReader::ReadPart(uint32_t first, uint32_t last) {
  first = std::min(first, kBuckets);
  last = std::min(last, kBuckets);
  if (first < last) {
    const uint32_t first_shard = first / kBucketsPerShard, end = (last - 1) / kBucketsPerShard + 1;
    ThreadPool::Default().Run(end - first_shard, [&](size_t i) { ReadShardPart(first_shard + i, first, last); });
  }
  table_->steps_ = std::max(table_->steps_, header_.steps);
  table_->finds_ = std::max(table_->finds_, header_.finds);
}

void SnapshotReader::ReadShardPart(size_t s, uint32_t first, uint32_t last) {
  auto& shard = table_->shards_[s];
  const size_t stride = table_->layout_.stride();
  const KeySource keys = table_->KeysOf(shard);
  const uint32_t before = shard.rows.count();
  std::vector<std::byte> payload;
  for (const Block& block : shards_[s]) {
    const bool is_rows = block.header.kind == BlockKind::kRows;
    if (!is_rows && block.header.kind != BlockKind::kPending) continue;
    ReadBlock(block, &payload);
    const size_t unit = is_rows ? header_.row_bytes : kPendingBytes;
    for (uint32_t i = 0; i < block.header.count; ++i) {
      const std::byte* from = payload.data() + i * unit;
      const uint64_t feasign = DecodeFixed64(from);
      const uint64_t hash = Mix64(feasign);
      if (Table::ShardOfHash(hash) != s) {
        Corrupt(block.offset, "feasign " + std::to_string(feasign) + " is not of shard " + std::to_string(s));
      }
      const uint32_t bucket = BucketOf(feasign);
      if (bucket < first || bucket >= last) continue;
      if (before != 0 && shard.index.Find(feasign, hash, keys) != 0) {
        Corrupt(block.offset, "feasign " + std::to_string(feasign) + " is in another part of the table, too");
      }
      if (!is_rows) {
        uint16_t count;
        std::memcpy(&count, from + sizeof feasign, sizeof count);
        shard.pending.Put(feasign, count);
        continue;
      }
      std::byte* row = table_->Row(shard, shard.rows.Add(&table_->arena_));
      std::memset(row + header_.row_bytes, 0, stride - header_.row_bytes);
      std::memcpy(row, from, header_.row_bytes);
      if (table_->layout_.has_counters()) RowLayout::ClearTouched(row);
    }
  }
  if (shard.rows.count() != before) shard.index.Rebuild(shard.rows.count(), table_->KeysOf(shard));
}

}  // namespace elasticctr
