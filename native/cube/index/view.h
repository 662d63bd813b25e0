// One table in one version as a stack of layers, and the function that puts a delta on top.
#pragma once

#include <memory>
#include <vector>

#include "cube/server/store.h"

namespace elasticctr::cube {

class LayeredView final : public TableView {
 public:
  // REQUIRES: newest first, at most kMaxLayers, all of one table and shard.
  explicit LayeredView(std::vector<std::shared_ptr<const Index>> layers);

  const IndexInfo& info() const override { return layers_.front()->info(); }
  uint64_t rows() const override { return rows_; }
  LookupResult Lookup(const uint64_t* feasigns, size_t n, uint8_t* rows, uint8_t* found, size_t* hits) const override {
    const LookupResult result = LookupRows(flat_, feasigns, n, rows, found, hits);
    if (is_mapped_) CheckWhole();
    return result;
  }
  void CheckWhole() const override {
    for (const auto& layer : layers_) layer->CheckWhole();
  }
  bool Scan(uint64_t* position, size_t buckets, std::vector<uint64_t>* feasigns) const override;
  const std::vector<std::shared_ptr<const Index>>& layers() const { return layers_; }
  const Layers& flat() const { return flat_; }

 private:
  std::vector<std::shared_ptr<const Index>> layers_;
  Layers flat_;
  uint64_t rows_ = 0;
  bool is_mapped_ = false;  // some layer is
};

// `delta` over the layers of `parent`. Overlays of similar size are merged to limit the layers a lookup searches: each
// is more than twice as large as the one above it, and there are at most three over the base.
std::shared_ptr<const LayeredView> Stack(std::shared_ptr<const Index> delta, const LayeredView& parent);

}  // namespace elasticctr::cube
