// The dense vector as a client last received it, part by part. Any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <span>
#include <vector>

#include "ps/client.h"
#include "ps/frames.h"

namespace elasticctr::ps {

class DenseStore {
 public:
  explicit DenseStore(const ClientOptions& options) : values_(options.dense_floats) {
    const auto shards = static_cast<uint32_t>(options.addresses.size());
    for (uint32_t s = 0; s < shards; ++s) {
      shares_.push_back(ShareOf(s, shards, options.dense_floats, options.dense_on_first));
    }
    versions_.resize(shards);
  }

  const Share& share(uint32_t shard) const { return shares_[shard]; }
  size_t floats(uint32_t shard) const { return shares_[shard].last_float - shares_[shard].first_float; }

  void Set(uint32_t shard, uint64_t version, const float* values) {
    std::lock_guard lock(mutex_);
    std::copy_n(values, floats(shard), values_.begin() + static_cast<ptrdiff_t>(shares_[shard].first_float));
    versions_[shard] = version;
  }
  // Versions of another pserver, or of one that was set back, cannot be compared with these.
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
  // REQUIRES: out.size() is that of the vector.
  uint64_t Copy(std::span<float> out) const {
    std::lock_guard lock(mutex_);
    std::copy(values_.begin(), values_.end(), out.begin());
    return std::accumulate(versions_.begin(), versions_.end(), uint64_t{0});
  }

 private:
  std::vector<Share> shares_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<float> values_;
  std::vector<uint64_t> versions_;
};

}  // namespace elasticctr::ps
