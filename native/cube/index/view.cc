#include "cube/index/view.h"

#include <algorithm>

namespace elasticctr::cube {
namespace {

constexpr size_t kMaxOverlays = 3;

}  // namespace

LayeredView::LayeredView(std::vector<std::shared_ptr<const Index>> layers) : layers_(std::move(layers)) {
  const IndexInfo& info = layers_.front()->info();
  flat_.sharding = info.sharding;
  flat_.shard = info.shard;
  flat_.shards = info.shards;
  for (const auto& layer : layers_) {
    rows_ += layer->info().rows;
    is_mapped_ = is_mapped_ || layer->is_mapped();
    flat_.images[flat_.count++] = layer->image();
  }
}

std::shared_ptr<const LayeredView> Stack(std::shared_ptr<const Index> delta, const LayeredView& parent) {
  std::vector<std::shared_ptr<const Index>> layers = parent.layers();
  const size_t base = layers.size() - 1;
  size_t next = 0;
  std::shared_ptr<const Index> top = std::move(delta);
  while (next < base &&
         (2 * top->image().entries() >= layers[next]->image().entries() || base - next >= kMaxOverlays)) {
    top = Index::Merge(*top, *layers[next++]);
  }
  std::vector<std::shared_ptr<const Index>> stacked{std::move(top)};
  stacked.insert(stacked.end(), layers.begin() + static_cast<ptrdiff_t>(next), layers.end());
  return std::make_shared<const LayeredView>(std::move(stacked));
}

// Positions count the buckets of all layers, newest layer first.
bool LayeredView::Scan(uint64_t* position, size_t buckets, std::vector<uint64_t>* feasigns) const {
  uint64_t first = 0;
  for (const auto& layer : layers_) {
    const Image& image = layer->image();
    for (; buckets > 0 && *position < first + image.bucket_count; ++*position, --buckets) {
      if (*position < first) break;
      const Bucket& bucket = image.buckets[*position - first];
      for (unsigned i = 0; i < std::min<unsigned>(bucket.count, Bucket::kFeasigns); ++i) {
        if ((bucket.dead >> i & 1) == 0) feasigns->push_back(bucket.feasigns[i]);
      }
    }
    first += image.bucket_count;
  }
  CheckWhole();
  return *position < first;
}

}  // namespace elasticctr::cube
