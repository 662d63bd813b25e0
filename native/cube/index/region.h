// Memory allocated directly from the system and returned to it by the destructor, independent of the allocator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "cube/index/guard.h"

namespace elasticctr::cube {

class Region {
 public:
  Region() = default;
  // Zeroed memory, in huge pages if they are available and it is large enough. Throws InternalError if memory is
  // exhausted.
  static Region Allocate(size_t bytes);
  // Maps a file; its bytes are read on first access. REQUIRES: the file has at least that size. If it is truncated
  // later, the missing bytes read as zeros and IsDamaged reports it.
  static Region Map(const std::string& path, size_t bytes);

  Region(Region&& other) noexcept { *this = static_cast<Region&&>(other); }
  Region& operator=(Region&& other) noexcept;
  ~Region();

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  // Whether a mapped file was truncated (cube/index/guard.h). Always false for other memory.
  bool IsDamaged() const { return guard_ != nullptr && guard_->IsDamaged(); }
  bool is_mapped() const { return guard_ != nullptr; }
  // Returns the end of the memory. REQUIRES: bytes <= size().
  void Shrink(size_t bytes);

 private:
  void* mapping_ = nullptr;
  size_t mapped_bytes_ = 0;
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
  std::unique_ptr<Guard> guard_;
};

}  // namespace elasticctr::cube
