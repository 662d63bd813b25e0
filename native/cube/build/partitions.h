// Fixed-size records in partitions, in memory until it is full and then in run files (builder.h).
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "cube/index/region.h"
#include "util/file.h"

namespace elasticctr::cube {

class Partitions {
 public:
  // Records take at most `arena_bytes` of memory.
  Partitions(size_t partitions, size_t record_bytes, uint64_t arena_bytes, std::string run_directory);
  ~Partitions();
  Partitions(const Partitions&) = delete;
  Partitions& operator=(const Partitions&) = delete;

  size_t size() const { return heads_.size(); }
  size_t record_bytes() const { return record_bytes_; }
  uint64_t records(size_t partition) const { return heads_[partition].records; }
  uint64_t run_bytes() const { return run_bytes_; }

  // Room for one record, which the caller writes.
  uint8_t* Append(size_t partition) {
    Head& head = heads_[partition];
    if (head.next == head.end) [[unlikely]]
      Grow(partition);
    uint8_t* record = head.next;
    head.next += record_bytes_;
    ++head.records;
    return record;
  }

  // All records of a partition in the order of their arrival, as stretches of whole records. Stretches in memory are
  // not copied; those in runs are read into `buffer`. May be called from several threads after the last Append.
  struct Stretch {
    const uint8_t* data;
    size_t records;
  };
  std::vector<Stretch> Read(size_t partition, std::vector<uint8_t>* buffer) const;

 private:
  struct Head {
    uint8_t* next = nullptr;
    uint8_t* end = nullptr;
    uint64_t records = 0;
    std::vector<uint32_t> chunks;  // in memory, the last one not full
  };
  struct Run {
    File file;
    std::vector<uint64_t> offsets;  // of each partition, and the end
  };

  void Grow(size_t partition);
  void Spill();
  size_t BytesIn(const Head& head, size_t chunk) const;

  const size_t record_bytes_;
  const std::string run_directory_;
  size_t chunk_bytes_;
  Region arena_;
  std::vector<Head> heads_;
  std::vector<uint32_t> free_;
  std::list<Run> runs_;
  uint64_t run_bytes_ = 0;
};

}  // namespace elasticctr::cube
