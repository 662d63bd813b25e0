#include <algorithm>
#include <cstring>
#include <mutex>

#include "table/snapshot/snapshot.h"
#include "util/coding.h"
#include "util/crc32c.h"
#include "util/hash.h"
#include "util/status.h"
#include "util/thread_pool.h"

namespace elasticctr {

void Table::Load(const std::string& path) {
  std::unique_lock writing(mutex_);
  const File file = File::OpenForReading(path);
  SnapshotReader reader(this, file);
  reader.Open();
  Clear();
  try {
    reader.Read();
  } catch (...) {
    Clear();
    steps_ = finds_ = 0;
    throw;
  }
}

void SnapshotReader::Corrupt(uint64_t offset, const std::string& what) const {
  throw Error(Code::kCorruption, file_.path() + ": damaged at byte " + std::to_string(offset) + ": " + what +
                                     "; take another checkpoint or a fresh copy of the file");
}

void SnapshotReader::Open() {
  ReadHeader();
  FindBlocks();
  CheckFooter();
}

void SnapshotReader::ReadHeader() {
  if (size_ < sizeof header_) Corrupt(0, "too short for a table file");
  file_.Read(&header_, sizeof header_, 0);
  if (std::memcmp(header_.magic, kSnapshotMagic, sizeof header_.magic) != 0) {
    Corrupt(0, "this is not a table file, which begins with ECTRTBL");
  }
  if (uint64_t{header_.layout_bytes} + header_.note_bytes > size_ - sizeof header_) {
    Corrupt(offsetof(SnapshotHeader, layout_bytes), "its header is longer than the file");
  }
  std::string texts(size_t{header_.layout_bytes} + header_.note_bytes, '\0');
  file_.Read(texts.data(), texts.size(), sizeof header_);
  const uint32_t crc = Crc32c(0, &header_, offsetof(SnapshotHeader, crc));
  if (Crc32c(crc, texts.data(), texts.size()) != header_.crc) Corrupt(0, "the header fails its checksum");
  if (header_.version != kSnapshotVersion && header_.version != kSnapshotVersionMarked) {
    throw Error(Code::kFailedPrecondition, file_.path() + ": table format " + std::to_string(header_.version) +
                                               "; this version of ElasticCTR reads formats 1 and 2");
  }
  CheckLayout(texts.substr(0, header_.layout_bytes));
  body_ = sizeof header_ + texts.size();
}

void SnapshotReader::CheckLayout(const std::string& layout) const {
  const std::string& ours = table_->layout_.description();
  if (layout != ours) {
    throw Error(Code::kFailedPrecondition, file_.path() + ": does not fit table '" + table_->settings_.name +
                                               "': the file's rows are " + layout + ", the table's " + ours +
                                               "; use the settings the file was written with");
  }
  if (header_.row_bytes != table_->layout_.used_bytes() || header_.shards != Table::kShards) {
    Corrupt(offsetof(SnapshotHeader, row_bytes), "row size or shard count contradict the layout");
  }
}

size_t SnapshotReader::UnitOf(BlockKind kind) const {
  if (kind == BlockKind::kRows) return header_.row_bytes;
  if (kind == BlockKind::kPending) return kPendingBytes;
  if (header_.version == kSnapshotVersion) return 0;
  return kind == BlockKind::kStamps ? 1 : kind == BlockKind::kGone ? kGoneBytes : kind == BlockKind::kMarks ? 8 : 0;
}

// Walks from block to block without reading payloads.
void SnapshotReader::FindBlocks() {
  shards_.resize(Table::kShards);
  uint64_t rows = 0, pending = 0, stamps = 0, marks = 0, offset = body_;
  size_t last_shard = 0;
  while (offset + sizeof(SnapshotFooter) < size_) {
    if (offset + sizeof(BlockHeader) > size_) Corrupt(offset, "cut short within a block's header");
    Block block{offset, {}};
    BlockHeader& header = block.header;
    file_.Read(&header, sizeof header, offset);
    const uint64_t unit = UnitOf(header.kind);
    if (unit == 0 || header.shard >= Table::kShards || header.shard < last_shard || header.count == 0 ||
        header.count > RowsPerBlock(unit) || header.zero != 0 || header.payload_bytes != header.count * unit) {
      Corrupt(offset, "a block's header contradicts itself");
    }
    if (header.payload_bytes > size_ - sizeof(SnapshotFooter) - sizeof header ||
        offset > size_ - sizeof(SnapshotFooter) - sizeof header - header.payload_bytes) {
      Corrupt(offset, "cut short within a block");
    }
    if (header.kind == BlockKind::kRows) rows += header.count;
    if (header.kind == BlockKind::kPending) pending += header.count;
    if (header.kind == BlockKind::kStamps) stamps += header.count;
    if (header.kind == BlockKind::kMarks) ++marks;
    last_shard = header.shard;
    shards_[header.shard].push_back(block);
    offset += sizeof header + header.payload_bytes;
  }
  if (offset + sizeof(SnapshotFooter) != size_) Corrupt(offset, "cut short before the footer");
  if (rows != header_.rows || pending != header_.pending) {
    Corrupt(offset, "holds " + std::to_string(rows) + " rows and " + std::to_string(pending) +
                        " pending feasigns, its header says " + std::to_string(header_.rows) + " and " +
                        std::to_string(header_.pending));
  }
  if (header_.version == kSnapshotVersionMarked && (stamps != rows || marks != 1)) {
    Corrupt(offset, "holds " + std::to_string(stamps) + " stamps for " + std::to_string(rows) + " rows and " +
                        std::to_string(marks) + " lists of marks");
  }
}

void SnapshotReader::CheckFooter() {
  const uint64_t offset = size_ - sizeof(SnapshotFooter);
  SnapshotFooter footer;
  file_.Read(&footer, sizeof footer, offset);
  uint64_t blocks = 0;
  uint32_t crc = 0;
  for (const auto& shard : shards_) {
    blocks += shard.size();
    for (const Block& block : shard) crc = Crc32c(crc, &block.header.crc, sizeof block.header.crc);
  }
  if (std::memcmp(footer.magic, kSnapshotEndMagic, sizeof footer.magic) != 0 ||
      footer.crc != Crc32c(0, &footer, offsetof(SnapshotFooter, crc)) || footer.blocks != blocks ||
      footer.blocks_crc != crc) {
    Corrupt(offset, "the footer does not fit the blocks");
  }
}

void SnapshotReader::ReadBlock(const Block& block, std::vector<std::byte>* payload) const {
  payload->resize(block.header.payload_bytes);
  file_.Read(payload->data(), payload->size(), block.offset + sizeof block.header);
  const uint32_t crc = Crc32c(0, &block.header, kBlockCovered);
  if (Crc32c(crc, payload->data(), payload->size()) != block.header.crc) {
    Corrupt(block.offset, "a block of shard " + std::to_string(block.header.shard) + " fails its checksum");
  }
}

void SnapshotReader::Read() {
  ThreadPool::Default().Run(Table::kShards, [this](size_t s) { ReadShard(s); });
  table_->steps_ = header_.steps;
  table_->finds_ = header_.finds;
}

void SnapshotReader::ReadShard(size_t s) {
  auto& shard = table_->shards_[s];
  const size_t stride = table_->layout_.stride();
  std::vector<std::byte> payload;
  uint32_t stamped = 0;
  for (const Block& block : shards_[s]) {
    ReadBlock(block, &payload);
    const std::byte* from = payload.data();
    if (block.header.kind == BlockKind::kMarks) {
      ReadMarks(block, payload);
      continue;
    }
    if (block.header.kind == BlockKind::kStamps) {
      if (stamped + block.header.count > shard.rows.count()) Corrupt(block.offset, "more stamps than rows before them");
      for (uint32_t i = 0; i < block.header.count; ++i) {
        const uint32_t number = shard.rows.Number(++stamped);
        table_->marks_.Ensure(number);
        table_->marks_.Put(number, static_cast<uint8_t>(from[i]));
      }
      continue;
    }
    for (uint32_t i = 0; i < block.header.count; ++i) {
      const uint64_t feasign = DecodeFixed64(from);
      if (Table::ShardOfHash(Mix64(feasign)) != s) {
        Corrupt(block.offset, "feasign " + std::to_string(feasign) + " is not of shard " + std::to_string(s));
      }
      if (block.header.kind == BlockKind::kRows) {
        std::byte* row = table_->Row(shard, shard.rows.Add(&table_->arena_));
        std::memset(row + header_.row_bytes, 0, stride - header_.row_bytes);
        std::memcpy(row, from, header_.row_bytes);
        from += header_.row_bytes;
      } else if (block.header.kind == BlockKind::kGone) {
        uint32_t epoch;
        std::memcpy(&epoch, from + sizeof feasign, sizeof epoch);
        shard.gone[feasign] = epoch;
        from += kGoneBytes;
      } else {
        uint16_t count;
        std::memcpy(&count, from + sizeof feasign, sizeof count);
        shard.pending.Put(feasign, count);
        from += kPendingBytes;
      }
    }
  }
  if (header_.version == kSnapshotVersionMarked && stamped != shard.rows.count()) {
    Corrupt(body_, "shard " + std::to_string(s) + " has rows without stamps");
  }
  shard.index.Rebuild(shard.rows.count(), table_->KeysOf(shard));
}

void SnapshotReader::ReadMarks(const Block& block, const std::vector<std::byte>& payload) {
  const uint64_t epoch = DecodeFixed64(payload.data());
  const uint32_t count = block.header.count - 1;
  if (epoch == 0 || epoch > UINT32_MAX || count > Marks::kRemembered || count > epoch) {
    Corrupt(block.offset, "a list of marks that cannot be");
  }
  std::deque<uint64_t> ids;
  for (uint32_t i = 1; i <= count; ++i) ids.push_back(DecodeFixed64(payload.data() + i * sizeof(uint64_t)));
  table_->marks_.Restore(static_cast<uint32_t>(epoch), std::move(ids));
}

}  // namespace elasticctr
