// Which rows changed since a mark; deltas are made from this. Marks cut a table's time into epochs; every row has a
// one-byte stamp, the epoch in which it last changed, so changes since each of the last 255 marks can be told apart.
// Pushes do not write stamps, which would cost a cache miss per row: they set the row's touched bit (row.h), and the
// next mark turns bits into stamps. A table that was never marked (epoch 0) keeps nothing.
//
// Epoch numbers restart when a table resumes from a checkpoint, so a mark also has a random id: a mark of another
// history is never mistaken for one of this table's.
//
// Threads: Stamp and Ensure may run concurrently for different rows; everything else needs the table's lock.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

namespace elasticctr {

struct Mark {
  uint32_t epoch = 0;
  uint64_t id = 0;
};

class Marks {
 public:
  static constexpr uint32_t kRemembered = 255;  // marks since which changes can be listed
  static constexpr uint8_t kLongAgo = 0;        // the stamp of a row that last changed before all of them

  bool is_on() const { return epoch_ != 0; }
  uint32_t epoch() const { return epoch_; }
  const std::deque<uint64_t>& ids() const { return ids_; }  // of the last marks, oldest first
  size_t bytes() const { return chunk_count_.load(std::memory_order_relaxed) * kChunkRows; }

  static uint64_t DrawId();  // at random
  // Ends the current epoch with a mark of this id. The new epoch's code was last used kRemembered epochs ago: the
  // caller replaces it by kLongAgo.
  Mark Next(uint64_t id);
  uint8_t code() const { return CodeOf(epoch_); }

  // The stamp of a row, by its number over the whole table. REQUIRES: Ensure(row) was called while on.
  void Stamp(uint32_t row) { Put(row, code()); }
  void Put(uint32_t row, uint8_t code) { *Address(row) = code; }
  uint8_t Get(uint32_t row) const { return *Address(row); }
  void Ensure(uint32_t row) {
    if (chunks_[row / kChunkRows].load(std::memory_order_acquire) == nullptr) Allocate(row / kChunkRows);
  }

  // Whether changes since the mark are known: it belongs to this history and is not too old.
  bool Knows(const Mark& mark) const;
  // Whether a row with this stamp changed after the mark. REQUIRES: Knows(mark).
  bool IsAfter(uint8_t stamp, const Mark& mark) const {
    if (stamp == kLongAgo) return false;
    const uint32_t age = (code() + kRemembered - stamp) % kRemembered;
    return age < epoch_ - mark.epoch;
  }
  // Drops this mark and all older ones.
  void Forget(const Mark& mark);
  uint32_t oldest() const { return epoch_ - static_cast<uint32_t>(ids_.size()); }  // epoch of the oldest mark known

  void Clear();
  // REQUIRES: values read from a file: at most kRemembered ids, no more than epochs.
  void Restore(uint32_t epoch, std::deque<uint64_t> ids);

 private:
  static constexpr size_t kChunkRows = size_t{1} << 20;
  static constexpr size_t kChunks = (size_t{1} << 32) / kChunkRows;

  static uint8_t CodeOf(uint32_t epoch) { return static_cast<uint8_t>(1 + (epoch - 1) % kRemembered); }
  uint8_t* Address(uint32_t row) const {
    return chunks_[row / kChunkRows].load(std::memory_order_relaxed) + row % kChunkRows;
  }
  void Allocate(size_t chunk);

  struct Free {
    void operator()(uint8_t* p) const;
  };

  uint32_t epoch_ = 0;
  std::deque<uint64_t> ids_;
  std::array<std::atomic<uint8_t*>, kChunks> chunks_{};
  std::deque<std::unique_ptr<uint8_t, Free>> owned_;
  std::atomic<size_t> chunk_count_ = 0;
  std::mutex mutex_;
};

}  // namespace elasticctr
