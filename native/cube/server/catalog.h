// The immutable catalog that a store gives to readers.
#pragma once

#include <unordered_map>

#include "cube/server/store.h"

namespace elasticctr::cube {

class FixedCatalog final : public Catalog {
 public:
  // REQUIRES: every view is a LayeredView.
  explicit FixedCatalog(std::vector<ModelEntry> models);

  const std::vector<ModelEntry>& models() const override { return models_; }
  Found Find(uint64_t table_hash, uint64_t version) const override;
  uint64_t TableHash(const std::string& name) const override;
  uint64_t resident_bytes() const override { return resident_bytes_; }

  const ModelEntry* FindModel(const std::string& name) const;

 private:
  struct SlotVersion {
    uint64_t number;
    uint32_t tag;
    const TableView* view;
  };
  struct Slot {
    uint64_t active = 0;
    std::vector<SlotVersion> versions;  // ascending
  };

  std::vector<ModelEntry> models_;  // by name
  std::unordered_map<uint64_t, Slot> slots_;
  uint64_t resident_bytes_ = 0;
};

}  // namespace elasticctr::cube
