#include <algorithm>
#include <cstring>
#include <mutex>

#include "table/snapshot/snapshot.h"
#include "util/coding.h"
#include "util/crc32c.h"
#include "util/thread_pool.h"

namespace elasticctr {

void Table::Save(const std::string& path, const std::string& note) const {
  AtomicFile file(path);
  Write(file.file(), note);
  file.Commit();
}

void Table::Write(const File& file, const std::string& note) const {
  std::shared_lock reading(mutex_);
  SnapshotWriter(*this, file).Write(note);
}

// Every block's size follows from counts alone, so shards are written concurrently, each at its own offset.
void SnapshotWriter::Write(const std::string& note) {
  std::vector<Region> regions(Table::kShards);
  uint64_t offset = WriteHeader(note);
  for (size_t s = 0; s < Table::kShards; ++s) {
    regions[s].offset = offset;
    offset += ShardBytes(s);
  }
  ThreadPool::Default().Run(Table::kShards, [&](size_t s) { WriteShard(s, &regions[s]); });

  SnapshotFooter footer{};
  std::memcpy(footer.magic, kSnapshotEndMagic, sizeof footer.magic);
  for (const Region& region : regions) {
    footer.blocks += region.crcs.size();
    footer.blocks_crc = Crc32c(footer.blocks_crc, region.crcs.data(), region.crcs.size() * sizeof(uint32_t));
  }
  footer.crc = Crc32c(0, &footer, offsetof(SnapshotFooter, crc));
  file_.Write(&footer, sizeof footer, offset);
}

uint64_t SnapshotWriter::WriteHeader(const std::string& note) const {
  const std::string& layout = table_.layout_.description();
  SnapshotHeader header{};
  std::memcpy(header.magic, kSnapshotMagic, sizeof header.magic);
  header.version = table_.marks_.is_on() ? kSnapshotVersionMarked : kSnapshotVersion;
  header.layout_bytes = static_cast<uint32_t>(layout.size());
  header.note_bytes = static_cast<uint32_t>(note.size());
  header.shards = Table::kShards;
  for (const auto& shard : table_.shards_) {
    header.rows += shard.rows.count();
    header.pending += shard.pending.size();
  }
  header.steps = table_.steps_;
  header.finds = table_.finds_;
  header.row_bytes = static_cast<uint32_t>(table_.layout_.used_bytes());
  header.crc = Crc32c(0, &header, offsetof(SnapshotHeader, crc));
  header.crc = Crc32c(header.crc, layout.data(), layout.size());
  header.crc = Crc32c(header.crc, note.data(), note.size());
  file_.Write(&header, sizeof header, 0);
  file_.Write(layout.data(), layout.size(), sizeof header);
  file_.Write(note.data(), note.size(), sizeof header + layout.size());
  return sizeof header + layout.size() + note.size();
}

uint64_t SnapshotWriter::ShardBytes(size_t s) const {
  const auto bytes_of = [](uint64_t count, size_t unit) {
    const uint64_t per_block = RowsPerBlock(unit);
    return count * unit + (count + per_block - 1) / per_block * sizeof(BlockHeader);
  };
  const auto& shard = table_.shards_[s];
  uint64_t bytes =
      bytes_of(shard.rows.count(), table_.layout_.used_bytes()) + bytes_of(shard.pending.size(), kPendingBytes);
  if (!table_.marks_.is_on()) return bytes;
  bytes += bytes_of(shard.rows.count(), 1) + bytes_of(shard.gone.size(), kGoneBytes);
  return s == 0 ? bytes + bytes_of(table_.marks_.ids().size() + 1, sizeof(uint64_t)) : bytes;
}

void SnapshotWriter::WriteShard(size_t s, Region* region) const {
  std::vector<std::byte> buffer;
  uint64_t offset = region->offset;
  const auto write_blocks = [&](BlockKind kind, size_t count, size_t unit, auto&& copy) {
    for (size_t begin = 0; begin < count; begin += RowsPerBlock(unit)) {
      const size_t n = std::min(RowsPerBlock(unit), count - begin);
      buffer.resize(sizeof(BlockHeader) + n * unit);
      for (size_t i = 0; i < n; ++i) copy(begin + i, buffer.data() + sizeof(BlockHeader) + i * unit);
      BlockHeader header{kind, static_cast<uint16_t>(s), static_cast<uint32_t>(n), n * unit, 0, 0};
      header.crc = Crc32c(0, &header, kBlockCovered);
      header.crc = Crc32c(header.crc, buffer.data() + sizeof header, n * unit);
      std::memcpy(buffer.data(), &header, sizeof header);
      file_.Write(buffer.data(), buffer.size(), offset);
      offset += buffer.size();
      region->crcs.push_back(header.crc);
    }
  };
  const auto& shard = table_.shards_[s];
  const size_t row_bytes = table_.layout_.used_bytes();
  write_blocks(BlockKind::kRows, shard.rows.count(), row_bytes, [&](size_t i, std::byte* to) {
    std::memcpy(to, table_.Row(shard, static_cast<uint32_t>(i + 1)), row_bytes);
    if (table_.catches_up_) table_.CatchUp(to);
    if (table_.marks_.is_on() && table_.layout_.has_counters()) RowLayout::ClearTouched(to);
  });
  // Sorted, so that the same table always gives the same bytes.
  std::vector<std::pair<uint64_t, uint16_t>> pending;
  shard.pending.ForEach([&](uint64_t feasign, uint16_t count) { pending.emplace_back(feasign, count); });
  std::sort(pending.begin(), pending.end());
  write_blocks(BlockKind::kPending, pending.size(), kPendingBytes, [&](size_t i, std::byte* to) {
    EncodeFixed64(to, pending[i].first);
    std::memcpy(to + sizeof(uint64_t), &pending[i].second, sizeof(uint16_t));
  });
  const Marks& marks = table_.marks_;
  if (!marks.is_on()) return;
  write_blocks(BlockKind::kStamps, shard.rows.count(), 1, [&](size_t i, std::byte* to) {
    *to = std::byte{table_.StampOf(shard.rows.Number(static_cast<uint32_t>(i + 1)))};
  });
  std::vector<std::pair<uint64_t, uint32_t>> gone(shard.gone.begin(), shard.gone.end());
  std::sort(gone.begin(), gone.end());
  write_blocks(BlockKind::kGone, gone.size(), kGoneBytes, [&](size_t i, std::byte* to) {
    EncodeFixed64(to, gone[i].first);
    std::memcpy(to + sizeof(uint64_t), &gone[i].second, sizeof(uint32_t));
  });
  if (s != 0) return;
  write_blocks(BlockKind::kMarks, marks.ids().size() + 1, sizeof(uint64_t),
               [&](size_t i, std::byte* to) { EncodeFixed64(to, i == 0 ? marks.epoch() : marks.ids()[i - 1]); });
}

}  // namespace elasticctr
