// Checks the bytes of a cube file against its header.
#pragma once

#include <string>

#include "cube/index/format.h"
#include "cube/index/image.h"

namespace elasticctr::cube {

// `file` is the whole file in memory. Throws Corruption naming `path`, what is wrong and where.
void CheckBlocks(const uint8_t* file, const Header& header, const std::string& path);
// Checks that every bucket is in order, belongs to this shard, and numbers its rows without a gap.
void CheckBuckets(const Image& image, const IndexInfo& info, const std::string& path);

}  // namespace elasticctr::cube
