// Servers' reports about themselves, as JSON: the answers to hello and describe. Any server may have sent them, so
// everything is checked; all parsers throw Corruption.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cube/index/index.h"

namespace elasticctr::cube {

struct Hello {
  uint64_t protocol;
  uint64_t max_body;
  uint64_t max_keys;
};

struct TableReport {
  std::string name;  // without its model
  Encoding encoding;
  Sharding sharding;
  uint32_t dim, row_bytes, shard, shards;
};

struct VersionReport {
  uint64_t version;
  bool is_ready;
  std::vector<TableReport> tables;
  std::string identity;  // of its contents; empty: unknown
};

struct ModelReport {
  std::string name;
  uint64_t active;  // 0: none
  std::vector<VersionReport> versions;
};

Hello ParseHello(std::string_view text);
std::vector<ModelReport> ParseReport(std::string_view text);

}  // namespace elasticctr::cube
