// Batches lookups of a few feasigns that arrived together into one search: the memory of one is fetched while another
// is served, which a search for a single feasign cannot do. One per loop; empty between turns.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "net/wire.h"

namespace elasticctr::cube {

class SmallLookups {
 public:
  static constexpr size_t kMaxKeys = 16;  // the most a small lookup may have
  static constexpr size_t kTogether = 256;

  static bool IsSmall(const net::wire::Header& request) {
    return request.opcode == static_cast<uint8_t>(net::wire::Opcode::kLookup) && request.body_bytes % 8 == 0 &&
           request.body_bytes <= 8 * kMaxKeys;
  }
  // Whether a lookup can join the batch.
  bool Takes(const net::wire::Header& request) const {
    return count_ == 0 || (requests_[0].table == request.table && requests_[0].version == request.version &&
                           count_ < requests_.size() && keys_ + kMaxKeys <= kTogether);
  }
  void Add(const net::wire::Header& request, const uint8_t* body) {
    requests_[count_++] = request;
    std::memcpy(feasigns_.data() + keys_, body, request.body_bytes);
    keys_ += request.body_bytes / 8;
  }
  void Clear() { count_ = keys_ = 0; }

  size_t count() const { return count_; }
  size_t keys() const { return keys_; }
  const net::wire::Header& request(size_t i) const { return requests_[i]; }
  const uint64_t* feasigns() const { return feasigns_.data(); }

 private:
  size_t count_ = 0;
  size_t keys_ = 0;
  std::array<net::wire::Header, 64> requests_;
  std::array<uint64_t, kTogether> feasigns_;
};

// Bits [from, from + n) of a bit array, n <= 16. REQUIRES: 8 bytes may be read at bits + from / 8.
inline uint64_t TakeBits(const uint8_t* bits, size_t from, size_t n) {
  return DecodeFixed64(bits + from / 8) >> (from % 8) & ((uint64_t{1} << n) - 1);
}

}  // namespace elasticctr::cube
