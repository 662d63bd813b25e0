#include "cube/server/directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "net/socket.h"
#include "util/json_object.h"
#include "util/number.h"
#include "util/status.h"

namespace elasticctr::cube {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMaxPathNameBytes = 64;
constexpr uint64_t kMaxJsonBytes = 16u << 20;

std::string ReadSmallFile(const fs::path& path) {
  std::error_code error;
  uint64_t bytes = fs::file_size(path, error);
  if (error) throw Error(Code::kNotFound, path.string() + ": no such file");
  if (bytes > kMaxJsonBytes) throw Error(Code::kCorruption, path.string() + " is too large to be what its name says");
  std::ifstream in(path, std::ios::binary);
  std::string text(bytes, '\0');
  if (!in.read(text.data(), static_cast<std::streamsize>(bytes)))
    throw Error(Code::kUnavailable, path.string() + " cannot be read");
  return text;
}

// REQUIRES: `text` outlives the result.
JsonObject ParseObject(const std::string& text, const fs::path& path) {
  std::optional<JsonObject> object = JsonObject::Parse(text);
  if (!object) throw Error(Code::kCorruption, path.string() + " is not a JSON object; fetch it again");
  return std::move(*object);
}

uint64_t Number(const JsonObject& object, const char* key, const fs::path& path) {
  const std::optional<uint64_t> number = object.Uint64(key);
  if (!number) throw Error(Code::kCorruption, path.string() + ": '" + key + "' is not a whole number");
  return *number;
}

std::string Text(const JsonObject& object, const char* key, const fs::path& path) {
  std::optional<std::string> text = object.Text(key);
  if (!text) throw Error(Code::kCorruption, path.string() + ": '" + key + "' is not text");
  return std::move(*text);
}

void Require(bool holds, const fs::path& path, const std::string& what) {
  if (!holds) throw Error(Code::kCorruption, path.string() + ": " + what);
}

// The origin that the agent recorded for a version it fetched. A directory built in place has no such file.
void ReadOrigin(const fs::path& path, VersionFiles* files) {
  std::error_code error;
  if (!fs::exists(path, error)) return;
  const std::string text = ReadSmallFile(path);
  const JsonObject origin = ParseObject(text, path);
  const auto read = [&](const char* key) {
    return !origin.Has(key) || origin.IsNull(key) ? std::string() : Text(origin, key, path);
  };
  files->identity = read("identity");
  files->parent_identity = read("parent_identity");
}

void WriteDurably(const fs::path& path, const std::string& text) {
  fs::path tmp = path;
  tmp += ".tmp";
  auto fail = [&](const char* what) {
    throw Error(Code::kUnavailable, std::string("cannot ") + what + " " + tmp.string() + ": " + std::strerror(errno) +
                                        "; nothing was activated");
  };
  net::Fd file(::open(tmp.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file) fail("make");
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) fail("write");
  if (::fsync(file.get()) != 0) fail("sync");
  if (::rename(tmp.c_str(), path.c_str()) != 0) fail("rename");
  net::Fd folder(::open(path.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder) ::fsync(folder.get());
}

}  // namespace

bool IsName(std::string_view name) {
  auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  return !name.empty() && name.size() <= kMaxPathNameBytes && is_word(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return is_word(c) || c == '.' || c == '-'; });
}

Directory::Directory(const std::string& data, uint32_t shard, uint32_t shards) : shard_(shard), shards_(shards) {
  std::error_code error;
  root_ = fs::canonical(data, error);
  if (error || !fs::is_directory(root_))
    throw Error(Code::kNotFound, data + ": no such directory; make it, or give another --data");
}

void Directory::RequireShardNamed() const {
  for (const std::string& model : Models()) {
    std::error_code error;
    for (fs::recursive_directory_iterator it(root_ / model, error), end; !error && it != end; it.increment(error)) {
      if (it.depth() > 1) it.disable_recursion_pending();
      unsigned shard = 0, shards = 0;
      std::string name = it->path().filename().string();
      if (it.depth() != 1 || std::sscanf(name.c_str(), "shard-%4u-of-%4u", &shard, &shards) != 2) continue;
      if (shards == std::max(shards_, 1u)) return;
      throw Error(Code::kConfig, root_.string() + " holds " + std::to_string(shards) +
                                     " shards; name the one to serve with --shard 0/" + std::to_string(shards));
    }
  }
}

std::vector<std::string> Directory::Models() const {
  std::vector<std::string> models;
  std::error_code error;
  for (fs::directory_iterator it(root_, error), end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    if (IsName(name) && it->is_directory(error)) models.push_back(name);
  }
  std::sort(models.begin(), models.end());
  return models;
}

std::vector<uint64_t> Directory::Versions(const std::string& model) const {
  std::vector<uint64_t> versions;
  std::error_code error;
  if (!IsName(model)) return versions;
  for (fs::directory_iterator it(root_ / model, error), end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    const uint64_t version = ParseNumber<uint64_t>(name).value_or(0);
    if (version == 0) continue;
    std::error_code ignored;
    if (fs::is_regular_file(VersionPath(model, version) / "shard.json", ignored)) versions.push_back(version);
  }
  std::sort(versions.begin(), versions.end());
  return versions;
}

fs::path Directory::VersionPath(const std::string& model, uint64_t version) const {
  fs::path path = root_ / model / std::to_string(version);
  char part[40];
  std::snprintf(part, sizeof part, "shard-%04u-of-%04u", shard_, std::max(shards_, 1u));
  std::error_code error;
  // A built directory with one shard is equivalent to a shard's own.
  if (shards_ != 0 || (!fs::exists(path / "shard.json", error) && fs::exists(path / part, error))) path /= part;
  return path;
}

fs::path Directory::LivePath(const std::string& model) const {
  if (shards_ < 2) return root_ / model / "LIVE";
  // Servers of several shards share a built directory, and each may be at a different stage of a rollout.
  char name[40];
  std::snprintf(name, sizeof name, "LIVE-%04u-of-%04u", shard_, shards_);
  return root_ / model / name;
}

void Directory::RequireInside(const fs::path& path) const {
  std::error_code error;
  fs::path real = fs::canonical(path, error);
  if (error) throw Error(Code::kNotFound, path.string() + ": no such file or directory");
  auto [end, ignored] = std::mismatch(root_.begin(), root_.end(), real.begin(), real.end());
  if (end != root_.end())
    throw Error(Code::kConfig, path.string() + " leads out of the data directory; replace the link by the files");
}

VersionFiles Directory::Read(const std::string& model, uint64_t version) const {
  if (!IsName(model))
    throw Error(Code::kConfig,
                "'" + model.substr(0, 80) + "' is not a model's name: letters, digits, '_', '.', '-', at most 64");
  if (version == 0) throw Error(Code::kConfig, "versions are whole numbers from 1");
  fs::path folder = VersionPath(model, version);
  fs::path path = folder / "shard.json";
  std::error_code ignored;
  if (!fs::exists(path, ignored))
    throw Error(Code::kNotFound, "version " + std::to_string(version) + " of " + model +
                                     " is not here: " + path.string() + " is missing");
  RequireInside(path);
  const std::string text = ReadSmallFile(path);
  const JsonObject shard = ParseObject(text, path);
  Require(Number(shard, "format", path) == 1, path, "its format is not 1; this server is too old for it");
  Require(Text(shard, "model", path) == model, path, "it is of another model");
  Require(Number(shard, "version", path) == version, path, "it is of another version");
  VersionFiles result{.model = model, .version = version, .parent = Number(shard, "parent", path), .files = {}};
  uint64_t number = Number(shard, "shard", path), count = Number(shard, "shards", path);
  Require(count >= 1 && count <= 4096 && number < count, path, "its shard is not one of 1 to 4096");
  result.shard = static_cast<uint32_t>(number);
  result.shards = static_cast<uint32_t>(count);
  bool is_delta = Text(shard, "kind", path) == "delta";
  Require(is_delta == (result.parent != 0) && result.parent < version, path,
          "its parent does not fit its kind and version");
  if (shards_ != 0) {
    Require(number == shard_ && count == shards_, path,
            "it is not shard " + std::to_string(shard_) + "/" + std::to_string(shards_) +
                ", which this server was started for");
  }
  ReadOrigin(folder / "origin.json", &result);
  const std::optional<std::vector<JsonObject>> files = shard.Objects("files");
  Require(files && !files->empty(), path, "'files' is not a list of objects, or is empty");
  for (const JsonObject& file : *files) {
    std::string table = Text(file, "table", path), name = Text(file, "name", path);
    Require(IsName(table) && name == table + ".cube", path, "a table's or file's name is not valid");
    fs::path where = folder / name;
    RequireInside(where);
    std::error_code error;
    uint64_t bytes = fs::file_size(where, error);
    Require(!error && bytes == Number(file, "bytes", path), where,
            "its size is not what shard.json says; fetch it again");
    result.files.push_back({table, where.string()});
  }
  return result;
}

std::optional<Live> Directory::ReadLive(const std::string& model) const {
  fs::path path = LivePath(model);
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  const std::string text = ReadSmallFile(path);
  const JsonObject live = ParseObject(text, path);
  Live result{Number(live, "version", path), Number(live, "previous", path)};
  Require(result.version != 0, path, "it names no version");
  return result;
}

void Directory::WriteLive(const std::string& model, const Live& live) const {
  WriteDurably(LivePath(model), "{\"version\": " + std::to_string(live.version) +
                                    ", \"previous\": " + std::to_string(live.previous) + "}\n");
}

}  // namespace elasticctr::cube
