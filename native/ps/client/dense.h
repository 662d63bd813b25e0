// The dense vector as last received, part by part. Each part stays in the memory it was received in, and the next one
// is received into the memory of the previous part. Any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <span>
#include <vector>

#include "ps/client/client.h"
#include "ps/wire/frames.h"
#include "table/buffer.h"

namespace elasticctr::ps {

class DenseStore {
 public:
  explicit DenseStore(const ClientOptions& options) {
    const auto shards = static_cast<uint32_t>(options.addresses.size());
    for (uint32_t s = 0; s < shards; ++s) {
      shares_.push_back(ShareOf(s, shards, options.dense_floats, options.dense_on_first));
    }
    versions_.resize(shards);
    parts_.resize(shards);
    spares_.resize(shards);
    for (uint32_t s = 0; s < shards; ++s) std::fill_n(parts_[s].Reserve(floats(s)), floats(s), 0.0f);
  }

  const Share& share(uint32_t shard) const { return shares_[shard]; }
  size_t floats(uint32_t shard) const { return shares_[shard].last_float - shares_[shard].first_float; }

  // Returns memory for one part.
  Buffer<float> Take(uint32_t shard) {
    Buffer<float> room;
    {
      std::lock_guard lock(mutex_);
      std::swap(room, spares_[shard]);
    }
    room.Reserve(floats(shard));
    return room;
  }
  void Set(uint32_t shard, uint64_t version, Buffer<float> received) {
    std::lock_guard lock(mutex_);
    spares_[shard] = std::move(parts_[shard]);
    parts_[shard] = std::move(received);
    versions_[shard] = version;
  }
  // Another pserver's versions, or those of a pserver that was reset, cannot be compared with these.
  void Forget(uint32_t shard) {
    std::lock_guard lock(mutex_);
    versions_[shard] = 0;
  }
  uint64_t version(uint32_t shard) const {
    std::lock_guard lock(mutex_);
    return versions_[shard];
  }
  uint64_t Sum() const {
    std::lock_guard lock(mutex_);
    return std::accumulate(versions_.begin(), versions_.end(), uint64_t{0});
  }
  // REQUIRES: out.size() is the size of the vector.
  uint64_t Copy(std::span<float> out) const {
    std::lock_guard lock(mutex_);
    for (uint32_t s = 0; s < parts_.size(); ++s) {
      std::copy_n(parts_[s].data(), floats(s), out.begin() + static_cast<ptrdiff_t>(shares_[s].first_float));
    }
    return std::accumulate(versions_.begin(), versions_.end(), uint64_t{0});
  }

 private:
  std::vector<Share> shares_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<Buffer<float>> parts_, spares_;
  std::vector<uint64_t> versions_;
};

}  // namespace elasticctr::ps
