// A small JSON object, read by key: for files and control messages, whose members come in any order. JsonReader reads
// it; values stay text until they are asked for. Of a repeated key, the last one counts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace elasticctr {

class JsonObject {
 public:
  // Nothing unless `text` is one JSON object. REQUIRES: it outlives what is made here.
  static std::optional<JsonObject> Parse(std::string_view text);

  bool Has(std::string_view key) const { return members_.find(key) != members_.end(); }
  bool IsNull(std::string_view key) const;
  bool IsNumber(std::string_view key) const;
  // Each returns nullopt if the member is missing or of another kind.
  std::optional<uint64_t> Uint64(std::string_view key) const;  // a whole number, however it is written: 7 or 7.0
  std::optional<std::string> Text(std::string_view key) const;
  std::optional<std::vector<JsonObject>> Objects(std::string_view key) const;  // an array of objects

 private:
  std::string_view Find(std::string_view key) const;

  std::map<std::string, std::string_view, std::less<>> members_;
};

}  // namespace elasticctr
