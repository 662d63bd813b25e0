// The file of a saved table, as docs/formats/table.md specifies it: header, blocks of rows and of pending feasigns
// shard after shard, footer. Every byte is under a CRC-32C.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "table/table.h"
#include "util/file.h"

namespace elasticctr {

inline constexpr char kSnapshotMagic[8] = {'E', 'C', 'T', 'R', 'T', 'B', 'L', '\0'};
inline constexpr char kSnapshotEndMagic[8] = {'E', 'C', 'T', 'R', 'E', 'N', 'D', '\0'};
inline constexpr uint32_t kSnapshotVersion = 1;         // of a table that was never marked
inline constexpr uint32_t kSnapshotVersionMarked = 2;   // with blocks of stamps, gone feasigns and marks
inline constexpr size_t kBlockBytes = size_t{1} << 20;  // of payload, unless one row is larger
inline constexpr size_t kPendingBytes = 10;             // feasign u64, count u16
inline constexpr size_t kGoneBytes = 12;                // feasign u64, epoch u32

enum class BlockKind : uint16_t { kRows = 1, kPending = 2, kStamps = 3, kGone = 4, kMarks = 5 };

// The header as stored on disk. `crc` covers the 60 bytes before it, the layout and the note.
struct SnapshotHeader {
  char magic[8];
  uint32_t version;
  uint32_t layout_bytes;
  uint32_t note_bytes;
  uint32_t shards;
  uint64_t rows;
  uint64_t steps;
  uint64_t finds;
  uint64_t pending;
  uint32_t row_bytes;
  uint32_t crc;
};
static_assert(sizeof(SnapshotHeader) == 64);

// `crc` covers the 16 bytes before it and the payload.
struct BlockHeader {
  BlockKind kind;
  uint16_t shard;
  uint32_t count;
  uint64_t payload_bytes;
  uint32_t crc;
  uint32_t zero;
};
static_assert(sizeof(BlockHeader) == 24);
inline constexpr size_t kBlockCovered = 16;

// `blocks_crc` covers the CRCs of all blocks in order, `crc` the 20 bytes before it.
struct SnapshotFooter {
  char magic[8];
  uint64_t blocks;
  uint32_t blocks_crc;
  uint32_t crc;
};
static_assert(sizeof(SnapshotFooter) == 24);

inline size_t RowsPerBlock(size_t row_bytes) { return row_bytes >= kBlockBytes ? 1 : kBlockBytes / row_bytes; }

class SnapshotWriter {
 public:
  SnapshotWriter(const Table& table, const File& file) : table_(table), file_(file) {}
  void Write(const std::string& note);

 private:
  struct Region {
    uint64_t offset = 0;  // of the shard's first block
    std::vector<uint32_t> crcs;
  };
  uint64_t WriteHeader(const std::string& note) const;
  void WriteShard(size_t shard, Region* region) const;
  uint64_t ShardBytes(size_t shard) const;

  const Table& table_;
  const File& file_;
};

class SnapshotReader {
 public:
  SnapshotReader(Table* table, const File& file) : table_(table), file_(file), size_(file.Size()) {}
  // Checks everything that can be checked without reading rows; does not touch the table.
  void Open();
  // Fills the table, which must be empty.
  void Read();
  // Adds only the rows and pending feasigns of buckets [first, last).
  void ReadPart(uint32_t first, uint32_t last);

 private:
  struct Block {
    uint64_t offset;  // of its header
    BlockHeader header;
  };
  [[noreturn]] void Corrupt(uint64_t offset, const std::string& what) const;
  void ReadHeader();
  void CheckLayout(const std::string& layout) const;
  void FindBlocks();
  void CheckFooter();
  // The size of one entry in a block of this kind; 0 for a kind this file cannot contain.
  size_t UnitOf(BlockKind kind) const;
  void ReadBlock(const Block& block, std::vector<std::byte>* payload) const;
  void ReadShard(size_t shard);
  void ReadShardPart(size_t shard, uint32_t first, uint32_t last);
  void ReadMarks(const Block& block, const std::vector<std::byte>& payload);

  Table* table_;
  const File& file_;
  const uint64_t size_;
  SnapshotHeader header_{};
  uint64_t body_ = 0;  // offset of the first block
  std::vector<std::vector<Block>> shards_;
};

}  // namespace elasticctr
