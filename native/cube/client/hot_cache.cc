#include "cube/client/hot_cache.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "util/hash.h"

namespace elasticctr::cube {
namespace {

constexpr size_t kParts = 16;
constexpr size_t kBytesPerSlot = 32;  // bytes of entries per index slot (8 bytes)
constexpr uint32_t kFree = 0;         // offset of no entry: entries start at kAlign
constexpr uint32_t kAlign = 8;

uint64_t HashOf(const CacheKey& key) {
  return Mix64(key.feasign ^ Mix64(key.version * 0x9E3779B97F4A7C15ULL + key.table));
}

struct Entry {
  CacheKey key;
  uint32_t row_bytes;
  uint32_t is_found;
};

struct Slot {
  uint32_t at = kFree;
  uint32_t tag = 0;  // of the hash: most searches compare one entry
};

// Entries one after another, and their index.
class Generation {
 public:
  explicit Generation(uint64_t bytes) {
    const uint64_t most = std::min<uint64_t>(bytes, UINT32_MAX);
    slots_.resize(std::bit_floor(std::max<uint64_t>(most / (kBytesPerSlot + sizeof(Slot)), 1)));
    const uint64_t left = most - std::min<uint64_t>(most, slots_.size() * sizeof(Slot));
    entries_.resize(left / kAlign * kAlign);
  }

  const Entry* Find(const CacheKey& key, uint64_t hash) const {
    const Slot& slot = slots_[Probe(key, hash)];
    return slot.at == kFree ? nullptr : At(slot.at);
  }

  bool HasRoom(uint32_t row_bytes) const {
    return entries_.size() - std::min(entries_.size(), end_) >= SizeOf(row_bytes) && count_ < slots_.size() * 3 / 4;
  }

  // REQUIRES: HasRoom, and the key is not present.
  void Add(const Entry& entry, uint64_t hash, const uint8_t* row) {
    const auto at = static_cast<uint32_t>(end_);
    std::memcpy(entries_.data() + at, &entry, sizeof entry);
    if (entry.row_bytes > 0) std::memcpy(entries_.data() + at + sizeof entry, row, entry.row_bytes);
    slots_[Probe(entry.key, hash)] = {at, static_cast<uint32_t>(hash >> 32)};
    end_ += SizeOf(entry.row_bytes);
    ++count_;
  }

  void Clear() {
    std::fill(slots_.begin(), slots_.end(), Slot{});
    end_ = kAlign;
    count_ = 0;
  }

  uint64_t bytes() const { return entries_.size() + slots_.size() * sizeof(Slot); }
  uint64_t count() const { return count_; }

 private:
  static size_t SizeOf(uint32_t row_bytes) { return (sizeof(Entry) + row_bytes + kAlign - 1) / kAlign * kAlign; }
  const Entry* At(uint32_t at) const { return reinterpret_cast<const Entry*>(entries_.data() + at); }

  // The slot of the key, or the free one where it belongs. A quarter of the slots are always free.
  size_t Probe(const CacheKey& key, uint64_t hash) const {
    const size_t mask = slots_.size() - 1;
    const auto tag = static_cast<uint32_t>(hash >> 32);
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
      if (slots_[i].at == kFree || (slots_[i].tag == tag && At(slots_[i].at)->key == key)) return i;
    }
  }

  std::vector<Slot> slots_;
  std::vector<uint8_t> entries_;
  size_t end_ = kAlign;
  uint64_t count_ = 0;
};

}  // namespace

class HotCache::Part {
 public:
  explicit Part(uint64_t bytes) : young_(bytes / 2), old_(bytes / 2) {}

  Result Get(const CacheKey& key, uint64_t hash, uint8_t* row, uint32_t row_bytes) {
    const std::lock_guard lock(mutex_);
    const Entry* entry = young_.Find(key, hash);
    const bool is_old = entry == nullptr;
    if (is_old) entry = old_.Find(key, hash);
    if (entry == nullptr || (entry->is_found != 0 && entry->row_bytes != row_bytes)) return Result::kUnknown;
    const bool is_found = entry->is_found != 0;
    if (is_found) std::memcpy(row, entry + 1, row_bytes);
    if (is_old && young_.HasRoom(entry->row_bytes)) young_.Add(*entry, hash, row);
    return is_found ? Result::kFound : Result::kMissing;
  }

  void Put(const CacheKey& key, uint64_t hash, const uint8_t* row, uint32_t row_bytes) {
    const Entry entry{key, row != nullptr ? row_bytes : 0, row != nullptr ? 1u : 0u};
    const std::lock_guard lock(mutex_);
    if (young_.Find(key, hash) != nullptr) return;
    if (!young_.HasRoom(entry.row_bytes)) {
      std::swap(young_, old_);
      young_.Clear();
      if (!young_.HasRoom(entry.row_bytes)) return;
    }
    young_.Add(entry, hash, row);
  }

  uint64_t bytes() const { return young_.bytes() + old_.bytes(); }
  uint64_t entries() const {
    const std::lock_guard lock(mutex_);
    return young_.count() + old_.count();
  }

 private:
  mutable std::mutex mutex_;
  Generation young_, old_;
};

HotCache::HotCache(uint64_t bytes) {
  for (size_t i = 0; i < kParts; ++i) parts_.push_back(std::make_unique<Part>(bytes / kParts));
}

HotCache::~HotCache() = default;

HotCache::Result HotCache::Get(const CacheKey& key, uint8_t* row, uint32_t row_bytes) {
  const uint64_t hash = HashOf(key);
  return parts_[hash >> 60]->Get(key, hash, row, row_bytes);
}

void HotCache::Put(const CacheKey& key, const uint8_t* row, uint32_t row_bytes) {
  const uint64_t hash = HashOf(key);
  parts_[hash >> 60]->Put(key, hash, row, row_bytes);
}

uint64_t HotCache::bytes() const {
  uint64_t sum = 0;
  for (const auto& part : parts_) sum += part->bytes();
  return sum;
}

uint64_t HotCache::entries() const {
  uint64_t sum = 0;
  for (const auto& part : parts_) sum += part->entries();
  return sum;
}

}  // namespace elasticctr::cube
