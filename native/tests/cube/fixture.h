// Small cube files for the native tests. A row is a function of (version, feasign), so any answer can be checked.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "cube/build/writer.h"
#include "cube/index/format.h"
#include "tests/check.h"

namespace elasticctr::cube {

inline constexpr uint32_t kTestRowBytes = 12;

inline void FillRow(uint64_t version, uint64_t feasign, uint8_t* row) {
  const uint64_t mixed = Mix64(feasign ^ version << 56);
  const auto number = static_cast<uint32_t>(version);
  std::memcpy(row, &number, 4);
  std::memcpy(row + 4, &mixed, 8);
}

struct TestFile {
  std::string name = "m/t";
  uint64_t version = 1;
  uint64_t parent = 0;
  uint32_t shard = 0;
  uint32_t shards = 1;
  Sharding sharding = Sharding::kBuckets;
};

inline IndexInfo WriteTestFile(const std::string& path, const TestFile& file, const std::set<uint64_t>& feasigns,
                               const std::set<uint64_t>& gone = {}) {
  IndexInfo info;
  info.name = file.name;
  info.kind = file.parent == 0 ? Kind::kBase : Kind::kDelta;
  info.row_bytes = kTestRowBytes;
  info.version = file.version;
  info.parent = file.parent;
  info.shard = file.shard;
  info.shards = file.shards;
  info.sharding = file.sharding;
  std::vector<uint8_t> rows(feasigns.size() * kTestRowBytes);
  std::vector<Entry> entries;
  for (const uint64_t f : feasigns) {
    if (OwnerOf(f, file.sharding, file.shards) != file.shard) continue;
    uint8_t* row = rows.data() + entries.size() * kTestRowBytes;
    FillRow(file.version, f, row);
    entries.push_back({PlaceOf(f), f, row});
  }
  info.rows = entries.size();
  for (const uint64_t f : gone) {
    if (OwnerOf(f, file.sharding, file.shards) == file.shard) entries.push_back({PlaceOf(f), f, nullptr});
  }
  info.tombstones = entries.size() - info.rows;
  std::sort(entries.begin(), entries.end());
  Writer writer(path, info);
  writer.Add(entries.data(), entries.size());
  return writer.Finish();
}

inline std::string TestPath(const std::string& name) {
  return "/tmp/elasticctr_cube_" + name + "_" + std::to_string(getpid());
}

inline std::string ReadBytes(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  CHECK(file != nullptr);
  std::fseek(file, 0, SEEK_END);
  std::string bytes(static_cast<size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  CHECK(std::fread(bytes.data(), 1, bytes.size(), file) == bytes.size());
  std::fclose(file);
  return bytes;
}

inline void WriteBytes(const std::string& path, const std::string& bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  CHECK(file != nullptr && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size());
  std::fclose(file);
}

}  // namespace elasticctr::cube
