#include "cube/build/partitions.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "util/status.h"

namespace elasticctr::cube {
namespace {

constexpr size_t kLeastRecordsPerChunk = 4;
constexpr size_t kMostChunkBytes = size_t{256} << 10;
constexpr size_t kWriteBytes = size_t{4} << 20;

}  // namespace

Partitions::Partitions(size_t partitions, size_t record_bytes, uint64_t arena_bytes, std::string run_directory)
    : record_bytes_(record_bytes), run_directory_(std::move(run_directory)), heads_(partitions) {
  // Several chunks per partition, so that half-full ones waste little.
  const size_t room = std::clamp<size_t>(arena_bytes / (partitions * 4), record_bytes * kLeastRecordsPerChunk,
                                         std::max(kMostChunkBytes, record_bytes * kLeastRecordsPerChunk));
  chunk_bytes_ = room / record_bytes * record_bytes;
  const size_t chunks = std::max<size_t>(arena_bytes / chunk_bytes_, partitions + 1);
  arena_ = Region::Allocate(chunks * chunk_bytes_);
  free_.resize(chunks);
  for (size_t i = 0; i < chunks; ++i) free_[i] = static_cast<uint32_t>(chunks - 1 - i);
}

Partitions::~Partitions() {
  for (const Run& run : runs_) unlink(run.file.path().c_str());
}

void Partitions::Grow(size_t partition) {
  if (free_.empty()) Spill();
  Head& head = heads_[partition];
  head.chunks.push_back(free_.back());
  free_.pop_back();
  head.next = arena_.data() + static_cast<size_t>(head.chunks.back()) * chunk_bytes_;
  head.end = head.next + chunk_bytes_;
}

size_t Partitions::BytesIn(const Head& head, size_t chunk) const {
  return chunk + 1 < head.chunks.size() ? chunk_bytes_ : chunk_bytes_ - static_cast<size_t>(head.end - head.next);
}

void Partitions::Spill() {
  const std::string path = run_directory_ + "/run-" + std::to_string(getpid()) + "-" +
                           std::to_string(reinterpret_cast<uintptr_t>(this)) + "-" + std::to_string(runs_.size());
  Run& run = runs_.emplace_back(Run{File::Create(path), {}});
  std::vector<uint8_t> buffer;
  buffer.reserve(kWriteBytes + chunk_bytes_);
  uint64_t written = 0;
  const auto flush = [&] {
    run.file.Write(buffer.data(), buffer.size(), written);
    written += buffer.size();
    buffer.clear();
  };
  for (Head& head : heads_) {
    run.offsets.push_back(written + buffer.size());
    for (size_t i = 0; i < head.chunks.size(); ++i) {
      const uint8_t* from = arena_.data() + static_cast<size_t>(head.chunks[i]) * chunk_bytes_;
      buffer.insert(buffer.end(), from, from + BytesIn(head, i));
      if (buffer.size() >= kWriteBytes) flush();
      free_.push_back(head.chunks[i]);
    }
    head.chunks.clear();
    head.next = head.end = nullptr;
  }
  flush();
  run.offsets.push_back(written);
  run_bytes_ += written;
}

std::vector<Partitions::Stretch> Partitions::Read(size_t partition, std::vector<uint8_t>* buffer) const {
  std::vector<Stretch> stretches;
  const Head& head = heads_[partition];
  size_t in_runs = 0;
  for (const Run& run : runs_) in_runs += run.offsets[partition + 1] - run.offsets[partition];
  buffer->resize(in_runs);
  size_t at = 0;
  for (const Run& run : runs_) {
    const uint64_t bytes = run.offsets[partition + 1] - run.offsets[partition];
    run.file.Read(buffer->data() + at, bytes, run.offsets[partition]);
    at += bytes;
  }
  if (in_runs > 0) stretches.push_back({buffer->data(), in_runs / record_bytes_});
  for (size_t i = 0; i < head.chunks.size(); ++i) {
    stretches.push_back(
        {arena_.data() + static_cast<size_t>(head.chunks[i]) * chunk_bytes_, BytesIn(head, i) / record_bytes_});
  }
  return stretches;
}

}  // namespace elasticctr::cube
