#include "cube/client/report.h"

#include "cube/index/format.h"
#include "util/json_object.h"
#include "util/status.h"

namespace elasticctr::cube {

namespace {

[[noreturn]] void Corrupt(const std::string& what) {
  throw Error(Code::kCorruption, "sent an invalid description of itself: " + what);
}

JsonObject ParseObject(std::string_view text) {
  std::optional<JsonObject> object = JsonObject::Parse(text);
  if (!object) Corrupt("not a JSON object");
  return std::move(*object);
}

void RequireMember(const JsonObject& object, const char* key) {
  if (!object.Has(key)) Corrupt(std::string("no '") + key + "'");
}

// null counts as 0.
uint64_t Number(const JsonObject& object, const char* key, uint64_t most) {
  RequireMember(object, key);
  const std::optional<uint64_t> number = object.IsNull(key) ? 0 : object.Uint64(key);
  if (!number) Corrupt(std::string("'") + key + "' is not a whole number");
  if (*number > most) Corrupt(std::string("'") + key + "' is " + std::to_string(*number));
  return *number;
}

std::string Text(const JsonObject& object, const char* key) {
  RequireMember(object, key);
  std::optional<std::string> text = object.Text(key);
  if (!text) Corrupt(std::string("'") + key + "' is not text");
  return std::move(*text);
}

std::vector<JsonObject> Objects(const JsonObject& object, const char* key) {
  RequireMember(object, key);
  std::optional<std::vector<JsonObject>> objects = object.Objects(key);
  if (!objects) Corrupt(std::string("'") + key + "' is not a list of objects");
  return std::move(*objects);
}

Encoding ToEncoding(const std::string& name) {
  try {
    return EncodingOf(name);
  } catch (const Error&) {
    Corrupt("encoding '" + name + "'");
  }
}

TableReport ParseTable(const JsonObject& object, const std::string& model) {
  TableReport table;
  table.name = Text(object, "name");
  // A server may give a table's full name.
  if (table.name.compare(0, model.size() + 1, model + "/") == 0) table.name.erase(0, model.size() + 1);
  table.encoding = ToEncoding(Text(object, "encoding"));
  const std::string sharding = Text(object, "sharding");
  if (sharding != "buckets" && sharding != "modulo") Corrupt("sharding '" + sharding + "'");
  table.sharding = sharding == "modulo" ? Sharding::kModulo : Sharding::kBuckets;
  table.row_bytes = static_cast<uint32_t>(Number(object, "row_bytes", 65536));
  table.dim = static_cast<uint32_t>(Number(object, "dim", 65536));
  table.shards = static_cast<uint32_t>(Number(object, "shards", 4096));
  table.shard = static_cast<uint32_t>(Number(object, "shard", 4095));
  if (table.row_bytes == 0 || table.shard >= table.shards) Corrupt("table '" + table.name + "'");
  if (table.encoding != Encoding::kRaw && RowBytes(table.encoding, table.dim) != table.row_bytes) {
    Corrupt("table '" + table.name + "': rows of " + std::to_string(table.row_bytes) + " bytes for dim " +
            std::to_string(table.dim));
  }
  return table;
}

}  // namespace

Hello ParseHello(std::string_view text) {
  const JsonObject object = ParseObject(text);
  return {Number(object, "protocol", UINT64_MAX), Number(object, "max_body", UINT64_MAX),
          Number(object, "max_keys", UINT64_MAX)};
}

std::vector<ModelReport> ParseReport(std::string_view text) {
  std::vector<ModelReport> models;
  for (const JsonObject& object : Objects(ParseObject(text), "models")) {
    ModelReport model{Text(object, "name"), Number(object, "active", UINT64_MAX), {}};
    for (const JsonObject& described : Objects(object, "versions")) {
      VersionReport version{Number(described, "version", UINT64_MAX), Text(described, "state") == "ready", {}, {}};
      if (version.is_ready) {
        if (described.Has("identity")) version.identity = Text(described, "identity");
        for (const JsonObject& table : Objects(described, "tables")) {
          version.tables.push_back(ParseTable(table, model.name));
        }
      }
      model.versions.push_back(std::move(version));
    }
    models.push_back(std::move(model));
  }
  return models;
}

}  // namespace elasticctr::cube
