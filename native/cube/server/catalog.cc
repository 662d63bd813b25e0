#include "cube/server/catalog.h"

#include <algorithm>
#include <set>

#include "cube/index/view.h"
#include "net/wire.h"
#include "util/hash.h"

namespace elasticctr::cube {

FixedCatalog::FixedCatalog(std::vector<ModelEntry> models) : models_(std::move(models)) {
  std::set<const Index*> counted;
  for (const ModelEntry& model : models_) {
    for (const auto& version : model.versions) {
      const uint32_t tag = net::wire::TagOf(version->identity);
      for (size_t i = 0; i < version->tables.size(); ++i) {
        Slot& slot = slots_[TableHash(model.name + "/" + version->tables[i])];
        slot.active = model.active;
        slot.versions.push_back({version->version, tag, version->views[i].get()});
        for (const auto& layer : static_cast<const LayeredView&>(*version->views[i]).layers()) {
          if (counted.insert(layer.get()).second) resident_bytes_ += layer->resident_bytes();
        }
      }
    }
  }
}

Catalog::Found FixedCatalog::Find(uint64_t table_hash, uint64_t version) const {
  Found found;
  const auto it = slots_.find(table_hash);
  if (it == slots_.end()) return found;
  const Slot& slot = it->second;
  found.table_known = true;
  found.active = slot.active;
  found.version = version == 0 ? slot.active : version;
  for (const SlotVersion& version : slot.versions) {
    if (version.number != found.version) continue;
    found.view = version.view;
    found.tag = version.tag;
  }
  return found;
}

uint64_t FixedCatalog::TableHash(const std::string& name) const { return Xxh64(name.data(), name.size(), 0); }

const ModelEntry* FixedCatalog::FindModel(const std::string& name) const {
  const auto it = std::find_if(models_.begin(), models_.end(), [&](const ModelEntry& m) { return m.name == name; });
  return it == models_.end() ? nullptr : &*it;
}

}  // namespace elasticctr::cube
