// Memory taken directly from the system and given back to it by the destructor, whatever the allocator keeps.
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
  // Zeroed memory, in huge pages if there are any and it is large enough for them. Throws InternalError if there is
  // none.
  static Region Allocate(size_t bytes);
  // A file's bytes, read as they are touched. REQUIRES: the file is that long. Should it become shorter, what is gone
  // reads as zeros and IsDamaged says so.
  static Region Map(const std::string& path, size_t bytes);

  Region(Region&& other) noexcept { *this = static_cast<Region&&>(other); }
  Region& operator=(Region&& other) noexcept;
  ~Region();

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  // Whether bytes of a mapped file have gone (cube/index/guard.h). Never so for other memory.
  bool IsDamaged() const { return guard_ != nullptr && guard_->IsDamaged(); }
  bool is_mapped() const { return guard_ != nullptr; }
  // Gives the end back. REQUIRES: bytes <= size().
  void Shrink(size_t bytes);

 private:
  void* mapping_ = nullptr;
  size_t mapped_bytes_ = 0;
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
  std::unique_ptr<Guard> guard_;
};

}  // namespace elasticctr::cube
