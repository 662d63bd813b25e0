#include "cube/client/report.h"

#include <boost/json.hpp>

#include "cube/index/format.h"
#include "util/status.h"

namespace elasticctr::cube {

namespace json = boost::json;

namespace {

[[noreturn]] void Corrupt(const std::string& what) {
  throw Error(Code::kCorruption, "describes itself in a way that makes no sense: " + what);
}

json::object ParseObject(std::string_view text) {
  boost::system::error_code failed;
  json::value value = json::parse({text.data(), text.size()}, failed);
  if (failed || !value.is_object()) Corrupt("not a JSON object");
  return std::move(value.as_object());
}

const json::value& Member(const json::object& object, const char* key) {
  const json::value* found = object.if_contains(key);
  if (found == nullptr) Corrupt(std::string("no '") + key + "'");
  return *found;
}

uint64_t Number(const json::object& object, const char* key, uint64_t most) {
  const json::value& value = Member(object, key);
  uint64_t number = 0;
  if (value.is_uint64()) {
    number = value.get_uint64();
  } else if (value.is_int64() && value.get_int64() >= 0) {
    number = static_cast<uint64_t>(value.get_int64());
  } else if (value.is_null()) {
    number = 0;
  } else {
    Corrupt(std::string("'") + key + "' is not a whole number");
  }
  if (number > most) Corrupt(std::string("'") + key + "' is " + std::to_string(number));
  return number;
}

std::string Text(const json::object& object, const char* key) {
  const json::value& value = Member(object, key);
  if (!value.is_string()) Corrupt(std::string("'") + key + "' is not text");
  return std::string(value.get_string().c_str(), value.get_string().size());
}

const json::array& Array(const json::object& object, const char* key) {
  const json::value& value = Member(object, key);
  if (!value.is_array()) Corrupt(std::string("'") + key + "' is not a list");
  return value.get_array();
}

const json::object& Object(const json::value& value) {
  if (!value.is_object()) Corrupt("a list holds something that is not an object");
  return value.get_object();
}

Encoding ToEncoding(const std::string& name) {
  try {
    return EncodingOf(name);
  } catch (const Error&) {
    Corrupt("encoding '" + name + "'");
  }
}

TableReport ParseTable(const json::object& object, const std::string& model) {
  TableReport table;
  table.name = Text(object, "name");
  // A server may name a table in full.
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
  const json::object object = ParseObject(text);
  return {Number(object, "protocol", UINT64_MAX), Number(object, "max_body", UINT64_MAX),
          Number(object, "max_keys", UINT64_MAX)};
}

std::vector<ModelReport> ParseReport(std::string_view text) {
  const json::object report = ParseObject(text);
  std::vector<ModelReport> models;
  for (const json::value& entry : Array(report, "models")) {
    const json::object& object = Object(entry);
    ModelReport model{Text(object, "name"), Number(object, "active", UINT64_MAX), {}};
    for (const json::value& listed : Array(object, "versions")) {
      const json::object& described = Object(listed);
      VersionReport version{Number(described, "version", UINT64_MAX), Text(described, "state") == "ready", {}, {}};
      if (version.is_ready) {
        if (described.contains("identity")) version.identity = Text(described, "identity");
        for (const json::value& table : Array(described, "tables")) {
          version.tables.push_back(ParseTable(Object(table), model.name));
        }
      }
      model.versions.push_back(std::move(version));
    }
    models.push_back(std::move(model));
  }
  return models;
}

}  // namespace elasticctr::cube
