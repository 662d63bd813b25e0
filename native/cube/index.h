// One cube file, open for lookups (docs/formats/cube-file.md). Immutable, so any number of threads may read it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace elasticctr::cube {

enum class Kind : uint8_t { kBase = 0, kDelta = 1 };
enum class Encoding : uint8_t { kRaw = 0, kFloat32 = 1, kFloat16 = 2, kInt8 = 3 };
enum class Sharding : uint8_t { kBuckets = 0, kModulo = 1 };

// Where an index keeps its bytes: copied into memory (huge pages where there are any) or mapped from the file.
enum class Residence : uint8_t { kMemory, kMapped };
// What opening checks: the header alone (O(1)), or every block and bucket too. kMemory always checks all.
enum class Check : uint8_t { kHeader, kAll };

struct IndexInfo {
  std::string name;  // model/table
  Kind kind;
  Encoding encoding;
  Sharding sharding;
  uint32_t dim;
  uint32_t row_bytes;
  uint32_t shard;
  uint32_t shards;
  uint64_t version;
  uint64_t parent;
  uint64_t rows;
  uint64_t tombstones;
  uint64_t homes;
  uint64_t buckets;
  uint64_t file_bytes;
};

class Index {
 public:
  // Throws NotFound, Corruption (a damaged or foreign file, naming what is wrong and where).
  static std::shared_ptr<const Index> Open(const std::string& path, Residence residence, Check check);
  virtual ~Index() = default;

  virtual const IndexInfo& info() const = 0;
  // Bytes of memory it holds (kMapped: of address space).
  virtual uint64_t resident_bytes() const = 0;
};

}  // namespace elasticctr::cube
