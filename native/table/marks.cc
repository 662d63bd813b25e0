#include "table/marks.h"

#include <cstdlib>
#include <new>
#include <random>
#include <utility>

#include "util/status.h"

namespace elasticctr {

void Marks::Free::operator()(uint8_t* p) const { std::free(p); }

uint64_t Marks::DrawId() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

Mark Marks::Next(uint64_t id) {
  if (epoch_ == UINT32_MAX) throw Error(Code::kInternal, "a table has been marked 2^32 times; start a new run");
  const Mark mark{epoch_, id};
  ids_.push_back(mark.id);
  if (ids_.size() > kRemembered) ids_.pop_front();
  ++epoch_;
  return mark;
}

bool Marks::Knows(const Mark& mark) const {
  return mark.epoch < epoch_ && mark.epoch >= oldest() && ids_[mark.epoch - oldest()] == mark.id;
}

void Marks::Forget(const Mark& mark) {
  while (!ids_.empty() && oldest() <= mark.epoch) ids_.pop_front();
}

// The system provides memory that is zero on first touch; kLongAgo is zero.
void Marks::Allocate(size_t chunk) {
  std::lock_guard lock(mutex_);
  if (chunks_[chunk].load(std::memory_order_relaxed) != nullptr) return;
  std::unique_ptr<uint8_t, Free> memory(static_cast<uint8_t*>(std::calloc(kChunkRows, 1)));
  if (memory == nullptr) throw std::bad_alloc();
  chunks_[chunk].store(memory.get(), std::memory_order_release);
  owned_.push_back(std::move(memory));
  chunk_count_.fetch_add(1, std::memory_order_relaxed);
}

void Marks::Clear() {
  epoch_ = 0;
  ids_.clear();
  for (auto& chunk : chunks_) chunk.store(nullptr, std::memory_order_relaxed);
  owned_.clear();
  chunk_count_ = 0;
}

void Marks::Restore(uint32_t epoch, std::deque<uint64_t> ids) {
  epoch_ = epoch;
  ids_ = std::move(ids);
}

}  // namespace elasticctr
