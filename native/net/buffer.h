// Bytes received or to be sent on a connection: a growable block whose front advances as bytes are consumed. Memory is
// not cleared and is kept until Release, so that a buffer in steady use stays in cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

namespace elasticctr::net {

class Buffer {
 public:
  Buffer() = default;
  ~Buffer() { std::free(block_); }
  Buffer(Buffer&& other) noexcept { Swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Swap(other);
    return *this;
  }

  size_t size() const { return end_ - begin_; }
  bool empty() const { return begin_ == end_; }
  size_t capacity() const { return capacity_; }
  const uint8_t* data() const { return block_ + begin_; }

  // Makes room for n more bytes at the end; Commit says how many were written there.
  uint8_t* Reserve(size_t n) {
    if (capacity_ - end_ < n) Grow(n);
    return block_ + end_;
  }
  void Commit(size_t n) { end_ += n; }
  size_t room() const { return capacity_ - end_; }

  void Append(const void* bytes, size_t n) {
    if (n == 0) return;
    std::memcpy(Reserve(n), bytes, n);
    Commit(n);
  }
  void Append(std::string_view text) { Append(text.data(), text.size()); }

  // Consume drops n bytes from the front; Truncate drops what was appended after the first n.
  void Consume(size_t n) {
    begin_ += n;
    if (begin_ == end_) begin_ = end_ = 0;
  }
  void Truncate(size_t n) { end_ = begin_ + n; }
  void Clear() { begin_ = end_ = 0; }
  void Release() {
    std::free(block_);
    block_ = nullptr;
    begin_ = end_ = capacity_ = 0;
  }
  void Swap(Buffer& other) {
    std::swap(block_, other.block_);
    std::swap(begin_, other.begin_);
    std::swap(end_, other.end_);
    std::swap(capacity_, other.capacity_);
  }

 private:
  void Grow(size_t n) {
    size_t used = size();
    if (begin_ != 0 && capacity_ - used >= n && begin_ >= used) {
      std::memcpy(block_, block_ + begin_, used);
    } else {
      size_t wanted = used + n;
      size_t larger = capacity_ + capacity_ / 2;
      size_t capacity = wanted > larger ? wanted : larger;
      if (capacity < 256) capacity = 256;
      auto* block = static_cast<uint8_t*>(std::malloc(capacity));
      if (block == nullptr) throw std::bad_alloc();
      if (used != 0) std::memcpy(block, block_ + begin_, used);
      std::free(block_);
      block_ = block;
      capacity_ = capacity;
    }
    begin_ = 0;
    end_ = used;
  }

  uint8_t* block_ = nullptr;
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t capacity_ = 0;
};

}  // namespace elasticctr::net
