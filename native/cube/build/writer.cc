#include "cube/build/writer.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "cube/build/packer.h"
#include "util/coding.h"
#include "util/crc32c.h"
#include "util/file.h"
#include "util/status.h"

namespace elasticctr::cube {
namespace {

// The bytes of one section, split into checksummed blocks that are written when full.
class Section {
 public:
  Section(const File& file, uint64_t offset) : file_(file), offset_(offset), block_(kBlockBytes) {}

  void Append(const void* data, size_t size) {
    if (used_ + size <= kBlockBytes) {
      std::memcpy(block_.data() + used_, data, size);
      used_ += size;
      if (used_ == kBlockBytes) Flush();
      return;
    }
    const auto* from = static_cast<const uint8_t*>(data);
    while (size > 0) {
      const size_t part = std::min(size, kBlockBytes - used_);
      std::memcpy(block_.data() + used_, from, part);
      used_ += part;
      from += part;
      size -= part;
      if (used_ == kBlockBytes) Flush();
    }
  }

  // Writes zeros up to a whole page. Returns the end of the section.
  uint64_t Finish() {
    const size_t padding = RoundUp(used_, kPageBytes) - used_;
    std::memset(block_.data() + used_, 0, padding);
    used_ += padding;
    Flush();
    return offset_;
  }

  const std::vector<uint32_t>& checksums() const { return checksums_; }

 private:
  void Flush() {
    if (used_ == 0) return;
    checksums_.push_back(Crc32c(0, block_.data(), used_));
    file_.Write(block_.data(), used_, offset_);
    // The disk writes while the next blocks are made.
    file_.StartSync(offset_, used_);
    offset_ += used_;
    used_ = 0;
  }

  const File& file_;
  uint64_t offset_;
  std::vector<uint8_t> block_;
  size_t used_ = 0;
  std::vector<uint32_t> checksums_;
};

uint64_t BucketsOffset(const IndexInfo& info) { return RoundUp(kPageBytes + info.rows * info.row_bytes, kPageBytes); }

IndexInfo Checked(const IndexInfo& info) {
  CheckInfo(info);
  if (info.rows + info.tombstones > kMaxEntries)
    throw Error(Code::kConfig, info.name + ": too many rows for one shard");
  return info;
}

}  // namespace

struct Writer::Rep {
  struct Emit {
    Section* section;
    void operator()(const Bucket& bucket) const { section->Append(&bucket, sizeof bucket); }
  };

  Rep(const std::string& path, const IndexInfo& given)
      : info(Checked(given)),
        file(path),
        rows(file.file(), kPageBytes),
        buckets(file.file(), BucketsOffset(info)),
        packer(HomesFor(info.rows + info.tombstones), Emit{&buckets}) {}

  IndexInfo info;
  AtomicFile file;
  Section rows;
  Section buckets;
  Packer<Emit> packer;
  Entry last{0, 0, nullptr};
  bool is_empty = true;
};

Writer::Writer(const std::string& path, const IndexInfo& info) : rep_(std::make_unique<Rep>(path, info)) {}
Writer::~Writer() = default;

void Writer::Add(const Entry* entries, size_t count) {
  constexpr size_t kAhead = 8;
  Rep& rep = *rep_;
  const size_t row_bytes = rep.info.row_bytes;
  for (size_t i = 0; i < count; ++i) {
    if (i + kAhead < count && entries[i + kAhead].row != nullptr) {
      __builtin_prefetch(entries[i + kAhead].row);
      __builtin_prefetch(entries[i + kAhead].row + row_bytes - 1);
    }
    const Entry& entry = entries[i];
    if (!rep.is_empty && !(rep.last < entry)) {
      throw Error(Code::kInternal, rep.info.name + ": feasigns were not given in the order of their places");
    }
    rep.last = entry;
    rep.is_empty = false;
    rep.packer.Add(entry.place, entry.feasign, entry.row == nullptr);
    if (entry.row != nullptr) rep.rows.Append(entry.row, row_bytes);
  }
}

IndexInfo Writer::Finish(bool sync) {
  Rep& rep = *rep_;
  IndexInfo& info = rep.info;
  if (rep.packer.rows() != info.rows || rep.packer.tombstones() != info.tombstones) {
    throw Error(Code::kInternal, info.name + ": " + std::to_string(rep.packer.rows()) + " rows and " +
                                     std::to_string(rep.packer.tombstones()) + " tombstones were given, " +
                                     std::to_string(info.rows) + " and " + std::to_string(info.tombstones) +
                                     " announced");
  }
  info.homes = HomesFor(info.rows + info.tombstones);
  info.buckets = rep.packer.Finish();
  Header header;
  header.buckets_offset = rep.rows.Finish();
  header.checksums_offset = rep.buckets.Finish();
  std::vector<uint32_t> checksums = rep.rows.checksums();
  checksums.insert(checksums.end(), rep.buckets.checksums().begin(), rep.buckets.checksums().end());
  const size_t bytes = checksums.size() * sizeof(uint32_t);
  rep.file.file().Write(checksums.data(), bytes, header.checksums_offset);
  header.checksums_crc = Crc32c(0, checksums.data(), bytes);
  info.file_bytes = header.checksums_offset + bytes;
  header.info = info;
  uint8_t page[kPageBytes];
  EncodeHeader(&header, page);
  rep.file.file().Write(page, kPageBytes, 0);
  sync ? rep.file.Commit() : rep.file.CommitUnsynced();
  return info;
}

}  // namespace elasticctr::cube
