// A lookup over all shards of a table in this process: the local equivalent of a client's lookup over the network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cube/server/store.h"

namespace elasticctr::cube {

// views[i] is shard i of views.size(), all of one version. Like TableView::Lookup, in the order of `feasigns`.
// REQUIRES: at least one view. Throws FailedPrecondition if the views are not all the shards in order.
void LookupShards(const std::vector<const TableView*>& views, const uint64_t* feasigns, size_t n, uint8_t* rows,
                  uint8_t* found);

}  // namespace elasticctr::cube
