// Where a server finds its files (docs/formats/cube-directory.md). Every path is made of checked names and stays inside
// the data directory, symbolic links followed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cube/server/store.h"

namespace elasticctr::cube {

// Letters, digits, `_.-`, at most 64 bytes, no dot or dash first.
bool IsName(std::string_view name);

struct Live {
  uint64_t version = 0;
  uint64_t previous = 0;
};

class Directory {
 public:
  // shards 0: the shard is not named in the paths. Throws NotFound if `data` is not a directory.
  Directory(const std::string& data, uint32_t shard, uint32_t shards);

  // Throws ConfigError if this is a built directory of several shards and the shard was not, or wrongly, named.
  void RequireShardNamed() const;
  std::vector<std::string> Models() const;
  // Complete versions (those with a shard.json), ascending.
  std::vector<uint64_t> Versions(const std::string& model) const;
  // What shard.json says of a version, sizes compared with the files. Throws ConfigError (a bad name), NotFound,
  // Corruption.
  VersionFiles Read(const std::string& model, uint64_t version) const;

  // Throws Corruption if the file is there and cannot be understood.
  std::optional<Live> ReadLive(const std::string& model) const;
  // Atomic. Throws Unavailable if the disk refuses.
  void WriteLive(const std::string& model, const Live& live) const;

 private:
  std::filesystem::path VersionPath(const std::string& model, uint64_t version) const;
  std::filesystem::path LivePath(const std::string& model) const;
  // Throws ConfigError if `path` leads out of the data directory.
  void RequireInside(const std::filesystem::path& path) const;

  std::filesystem::path root_;
  const uint32_t shard_;
  const uint32_t shards_;
};

}  // namespace elasticctr::cube
