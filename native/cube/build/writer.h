// Writes one cube file from its entries in the order of their places. Memory: two MiB and a checksum per MiB written.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cube/index/image.h"

namespace elasticctr::cube {

class Writer {
 public:
  // Writes `path`.tmp. `info` gives name, kind, encoding, sharding, dim, row_bytes, shard, shards, version and parent;
  // its rows and tombstones announce the number of entries. Throws ConfigError for an invalid info.
  Writer(const std::string& path, const IndexInfo& info);
  ~Writer();  // removes the temporary file unless Finish was called
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // REQUIRES: ascending by (place, feasign), each feasign once, all of this shard; place == PlaceOf(feasign).
  void Add(const Entry* entries, size_t count);
  // Completes the file, syncs it (or leaves that to the caller) and renames it. Throws InternalError if the number of
  // entries differs from the announced one, or the disk is full.
  IndexInfo Finish(bool sync = true);

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

}  // namespace elasticctr::cube
