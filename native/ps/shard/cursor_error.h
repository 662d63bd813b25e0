// A push that does not begin at its chunk's cursor: another trainer has the chunk, or a rollback moved the cursor.
// Ask every pserver for its cursor and continue from the smallest.
#pragma once

#include <cstdint>
#include <string>

#include "util/status.h"

namespace elasticctr::ps {

class CursorError : public Error {
 public:
  CursorError(const std::string& message, uint64_t chunk, uint32_t shard, uint32_t cursor)
      : Error(Code::kFailedPrecondition, message), chunk_(chunk), shard_(shard), cursor_(cursor) {}
  uint64_t chunk() const { return chunk_; }
  uint32_t shard() const { return shard_; }
  uint32_t cursor() const { return cursor_; }

 private:
  uint64_t chunk_;
  uint32_t shard_;
  uint32_t cursor_;
};

}  // namespace elasticctr::ps
