// Memory for panels and packed weights: aligned for vector loads, on huge pages when it is large enough to benefit,
// kept between steps. Growing discards the contents.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace elasticctr::dense {

class Buffer {
 public:
  // At least `bytes`, aligned to 64. New memory is zero; old contents are not kept.
  void Reserve(size_t bytes) {
    if (bytes <= size_) return;
    data_.reset();
    size_ = 0;
    const size_t alignment = bytes >= kHugePage ? kHugePage : 64;
    const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    void* memory = std::aligned_alloc(alignment, rounded);
    if (memory == nullptr) throw std::bad_alloc();
    if (alignment == kHugePage) madvise(memory, rounded, MADV_HUGEPAGE);
    __builtin_memset(memory, 0, rounded);
    data_.reset(static_cast<char*>(memory));
    size_ = rounded;
  }

  char* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  static constexpr size_t kHugePage = size_t{2} << 20;
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  std::unique_ptr<char, Free> data_;
  size_t size_ = 0;
};

}  // namespace elasticctr::dense
