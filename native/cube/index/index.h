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

// Where an index keeps its bytes: copied into memory (huge pages where there are any) or mapped from the file.
enum class Residence : uint8_t { kMemory, kMapped };
// What opening checks: the header alone (O(1)), or every block and bucket too. kMemory always checks all.
enum class Check : uint8_t { kHeader, kAll };

class Index {
 public:
  // Throws NotFound, Corruption (a damaged or foreign file, naming what is wrong and where).
  static std::shared_ptr<const Index> Open(const std::string& path, Residence residence, Check check);
  // The rows and tombstones of `newer` over those of `older`, in memory of its own. REQUIRES: both checked and of one
  // table and shard. The result is a delta: version of `newer`, parent of `older`.
  static std::shared_ptr<const Index> Merge(const Index& newer, const Index& older);

  // Writes what layers, newest first, add up to as a base at `path`: rows of a later one stand for those of an earlier,
  // tombstones take them away. `info` gives name, version and the rest that the files have in common. Two walks over
  // the layers, no memory of its own; not synced. REQUIRES: all checked, of one table and shard.
  static IndexInfo Compact(const std::vector<std::shared_ptr<const Index>>& layers, const IndexInfo& info,
                           const std::string& path);

  const IndexInfo& info() const { return info_; }
  const Image& image() const { return image_; }
  // Tells apart files that differ in anything. 0 for a merge.
  uint32_t header_crc() const { return header_crc_; }
  // Throws Corruption if the file it is mapped from was cut short: what was read since it was opened is not to be used.
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

  std::string path_;  // of a file; empty: a merge
  IndexInfo info_;
  Image image_;
  uint32_t header_crc_ = 0;
  Region region_;
};

}  // namespace elasticctr::cube
