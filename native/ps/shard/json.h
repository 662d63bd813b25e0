// `pserver.<shard>.json`: the batches a saved pserver had applied (docs/formats/checkpoint.md).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ps/shard/cursors.h"

namespace elasticctr::ps {

struct SavedFile {
  std::string name;
  uint64_t bytes = 0;
};

struct SavedShard {
  uint32_t shard = 0;
  uint32_t shards = 0;
  uint64_t step = 0;
  Cursors::Part cursors;  // its share is filled in by the loader
  std::vector<SavedFile> files;
};

std::string ToJson(const SavedShard& saved);
// Throws Corruption, naming `path`.
SavedShard FromJson(std::string_view text, const std::string& path);

}  // namespace elasticctr::ps
