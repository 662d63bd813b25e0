// The hot loop of the service: looks up many feasigns in the layers of one table.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cube/index/image.h"

namespace elasticctr::cube {

inline constexpr size_t kMaxLayers = 8;

// Newest first. All of one table and shard.
struct Layers {
  Image images[kMaxLayers];
  size_t count = 0;
  Sharding sharding = Sharding::kBuckets;
  uint32_t shard = 0;
  uint32_t shards = 1;
};

enum class LookupResult : uint8_t { kOk, kWrongShard };

// See TableView::Lookup in store.h.
LookupResult LookupRows(const Layers& layers, const uint64_t* feasigns, size_t n, uint8_t* rows, uint8_t* found,
                        size_t* hits);
// The same without AVX-512, even if the CPU has it.
LookupResult LookupPortable(const Layers& layers, const uint64_t* feasigns, size_t n, uint8_t* rows, uint8_t* found,
                            size_t* hits);

}  // namespace elasticctr::cube
