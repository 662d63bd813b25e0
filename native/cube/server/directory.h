// The layout of a server's files (docs/formats/cube-directory.md). Every path consists of checked names and stays
// inside the data directory, after resolving symbolic links.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cube/server/store.h"

namespace elasticctr::cube {

// Letters, digits, `_.-`, at most 64 bytes, not starting with a dot or dash.
bool IsName(std::string_view name);

struct Live {
  uint64_t version = 0;
  uint64_t previous = 0;
};

class Directory {
 public:
  // shards 0: the paths do not name the shard. Throws NotFound if `data` is not a directory.
  Directory(const std::string& data, uint32_t shard, uint32_t shards);

  // Throws ConfigError if this is a built directory of several shards and the shard was not named, or named wrongly.
  void RequireShardNamed() const;
  std::vector<std::string> Models() const;
  // Complete versions (those with a shard.json), ascending.
  std::vector<uint64_t> Versions(const std::string& model) const;
  // The contents of a version's shard.json, with sizes compared to the files. Throws ConfigError (a bad name),
  // NotFound, Corruption.
  VersionFiles Read(const std::string& model, uint64_t version) const;

  // Throws Corruption if the file exists and cannot be parsed.
  std::optional<Live> ReadLive(const std::string& model) const;
  // Atomic. Throws Unavailable if the disk write fails.
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
