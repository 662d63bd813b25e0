// An uninitialised array that only grows: scratch of hot loops, where std::vector would write zeros first.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

namespace elasticctr {

template <typename T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  // Room for `size` elements; contents are kept only while the room suffices.
  T* Reserve(size_t size) {
    if (size > capacity_ || !data_) {
      const size_t bytes = size * sizeof(T) / 64 * 64 + 64;
      data_.reset(static_cast<T*>(std::aligned_alloc(64, bytes)));
      if (!data_) {
        capacity_ = 0;
        throw std::bad_alloc();
      }
      capacity_ = size;
    }
    return data_.get();
  }
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  T& operator[](size_t i) { return data_.get()[i]; }
  const T& operator[](size_t i) const { return data_.get()[i]; }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> data_;
  size_t capacity_ = 0;
};

}  // namespace elasticctr
