// Frequently requested rows, kept in the client: bounded bytes, found by (table, version, feasign). Rows of a version
// never change, so an entry never becomes stale; rows of versions that are no longer requested are dropped first.
//
// Each part keeps two generations of entries. New entries, and old ones that are requested again, go to the young
// generation; when that is full it becomes the old one and the previous old one is dropped, in one step and without a
// search.
//
// Threads: any; each part has its own lock.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace elasticctr::cube {

struct CacheKey {
  uint64_t version;
  uint64_t feasign;
  uint64_t table;
  bool operator==(const CacheKey&) const = default;
};

class HotCache {
 public:
  // Takes at most `bytes` in all, index included. If that is too little for a few entries of some hundred bytes, keeps
  // nothing.
  explicit HotCache(uint64_t bytes);
  ~HotCache();

  enum class Result : uint8_t { kUnknown, kFound, kMissing };
  // kFound: the row is copied to `row` (REQUIRES: room for row_bytes). kMissing: the version does not have the feasign.
  Result Get(const CacheKey& key, uint8_t* row, uint32_t row_bytes);
  // row null: the version does not have the feasign.
  void Put(const CacheKey& key, const uint8_t* row, uint32_t row_bytes);

  uint64_t bytes() const;  // allocated from the system
  uint64_t entries() const;

 private:
  class Part;
  std::vector<std::unique_ptr<Part>> parts_;
};

}  // namespace elasticctr::cube
