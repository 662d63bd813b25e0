#include "cube/index/sharded.h"

#include <algorithm>
#include <cstring>

#include "util/status.h"

namespace elasticctr::cube {
namespace {

// Feasigns distributed at a time: their data stays in the cache.
constexpr size_t kBatch = 4096;

struct Part {
  std::vector<uint64_t> feasigns;
  std::vector<uint32_t> places;
};

void CheckOrder(const std::vector<const TableView*>& views) {
  for (size_t i = 0; i < views.size(); ++i) {
    const IndexInfo& info = views[i]->info();
    if (info.shard != i || info.shards != views.size() || info.sharding != views[0]->info().sharding ||
        info.row_bytes != views[0]->info().row_bytes) {
      throw Error(Code::kFailedPrecondition, info.name + ": not all shards of one build, in order");
    }
  }
}

}  // namespace

void LookupShards(const std::vector<const TableView*>& views, const uint64_t* feasigns, size_t n, uint8_t* rows,
                  uint8_t* found) {
  CheckOrder(views);
  const IndexInfo& info = views[0]->info();
  const size_t row_bytes = info.row_bytes;
  size_t hits;
  if (views.size() == 1) {
    views[0]->Lookup(feasigns, n, rows, found, &hits);
    return;
  }
  std::vector<Part> parts(views.size());
  std::vector<uint8_t> part_rows(std::min(n, kBatch) * row_bytes), part_found(kBatch / 8);
  std::memset(found, 0, (n + 7) / 8);
  for (size_t first = 0; first < n; first += kBatch) {
    for (Part& part : parts) part.feasigns.clear(), part.places.clear();
    for (size_t i = first; i < std::min(n, first + kBatch); ++i) {
      Part& part = parts[OwnerOf(feasigns[i], info.sharding, info.shards)];
      part.feasigns.push_back(feasigns[i]);
      part.places.push_back(static_cast<uint32_t>(i - first));
    }
    for (size_t shard = 0; shard < parts.size(); ++shard) {
      const Part& part = parts[shard];
      views[shard]->Lookup(part.feasigns.data(), part.feasigns.size(), part_rows.data(), part_found.data(), &hits);
      for (size_t k = 0; k < part.places.size(); ++k) {
        const size_t i = first + part.places[k];
        std::memcpy(rows + i * row_bytes, part_rows.data() + k * row_bytes, row_bytes);
        const unsigned bit = part_found[k / 8] >> (k % 8) & 1u;
        found[i / 8] = static_cast<uint8_t>(found[i / 8] | bit << (i % 8));
      }
    }
  }
}

}  // namespace elasticctr::cube
