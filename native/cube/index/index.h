// One cube file, open for lookups (docs/formats/cube-file.md). Immutable, so any number of threads may read it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cube/index/format.h"
#include "cube/index/image.h"
#include "cube/index/region.h"

namespace elasticctr::cube {

// Where an index keeps its bytes: copied into memory (huge pages if available) or mapped from the file.
enum class Residence : uint8_t { kMemory, kMapped };
// What opening checks: only the header (O(1)), or every block and bucket too. kMemory always checks all.
enum class Check : uint8_t { kHeader, kAll };

class Index {
 public:
  // Throws NotFound, Corruption (a damaged or foreign file, naming what is wrong and where).
  static std::shared_ptr<const Index> Open(const std::string& path, Residence residence, Check check);
  // The rows and tombstones of `newer` over those of `older`, in newly allocated memory. REQUIRES: both were checked
  // and belong to one table and shard. The result is a delta: version of `newer`, parent of `older`.
  static std::shared_ptr<const Index> Merge(const Index& newer, const Index& older);

  // Writes the combination of layers, newest first, as a base at `path`: rows of newer layers replace older ones, and
  // tombstones remove them. `info` gives name, version and the other fields the files have in common. Walks over the
  // layers twice and allocates no memory; does not sync. REQUIRES: all were checked and belong to one table and shard.
  static IndexInfo Compact(const std::vector<std::shared_ptr<const Index>>& layers, const IndexInfo& info,
                           const std::string& path);

  const IndexInfo& info() const { return info_; }
  const Image& image() const { return image_; }
  // Differs between files with different contents. 0 for a merge.
  uint32_t header_crc() const { return header_crc_; }
  // Throws Corruption if the mapped file was truncated: discard what was read since it was opened.
  void CheckWhole() const {
    if (region_.IsDamaged()) [[unlikely]]
      FailCut();
  }
  bool is_damaged() const { return region_.IsDamaged(); }
  bool is_mapped() const { return region_.is_mapped(); }
  // Bytes of memory it holds (kMapped: of address space).
  uint64_t resident_bytes() const { return region_.size(); }

 private:
  Index() = default;
  [[noreturn]] void FailCut() const;

  std::string path_;  // empty: a merge
  IndexInfo info_;
  Image image_;
  uint32_t header_crc_ = 0;
  Region region_;
};

}  // namespace elasticctr::cube
