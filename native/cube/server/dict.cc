// The two HTTP services that clients and agents of Paddle's Cube use: DictService/seek and ControlService/cmd.
#include "cube/server/http.h"
#include "util/hash.h"
#include "util/json_object.h"
#include "util/json_reader.h"
#include "util/number.h"

namespace elasticctr::cube {

namespace {

constexpr std::string_view kMissing = "{\"status\":4294967295,\"value\":\"\"}";  // -1 in an unsigned field

size_t Base64Bytes(size_t n) { return (n + 2) / 3 * 4; }

// Writes Base64Bytes(n) characters; returns the end.
char* WriteBase64(const uint8_t* bytes, size_t n, char* to) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto write = [&](uint32_t group) {
    for (int shift = 18; shift >= 0; shift -= 6) *to++ = kDigits[group >> shift & 63];
  };
  size_t i = 0;
  for (; i + 3 <= n; i += 3) write(uint32_t{bytes[i]} << 16 | uint32_t{bytes[i + 1]} << 8 | bytes[i + 2]);
  if (i < n) {
    write(uint32_t{bytes[i]} << 16 | (i + 1 < n ? uint32_t{bytes[i + 1]} << 8 : 0));
    to[-1] = '=';
    if (i + 1 == n) to[-2] = '=';
  }
  return to;
}

// A server of Paddle's Cube has one table. Ours may have several: `?table=model/table` then selects one.
size_t FindTable(const Worker& worker, const std::string& query) {
  const std::vector<std::string>& tables = worker.tables();
  std::string wanted;
  if (size_t at = query.find("table="); at == 0 || (at != std::string::npos && query[at - 1] == '&')) {
    wanted = query.substr(at + 6, query.find('&', at) - at - 6);
    for (size_t slash;
         (slash = wanted.find("%2F")) != std::string::npos || (slash = wanted.find("%2f")) != std::string::npos;)
      wanted.replace(slash, 3, "/");
  }
  if (tables.empty()) throw Error(Code::kUnavailable, "no version of any model is active yet");
  if (wanted.empty() && tables.size() == 1) return 0;
  for (size_t i = 0; i < tables.size(); ++i) {
    if (tables[i] == wanted) return i;
  }
  std::string names;
  for (const std::string& name : tables) names += (names.empty() ? "" : ", ") + name;
  throw Error(wanted.empty() ? Code::kConfig : Code::kNotFound, "say which table: ?table=… with one of " + names);
}

struct SeekRequest {
  std::vector<uint64_t> keys;
  bool has_keys = false;
  bool wants_version = false;
};

uint64_t ReadKey(JsonReader* reader) {
  if (reader->Peek() != JsonReader::Kind::kString) return reader->Uint64();
  // Programs limited to numbers below 2^53 write large ones as text.
  const auto key = ParseNumber<uint64_t>(reader->String());
  if (!key) throw Error(Code::kData, "a key is not a whole number of 0 to 2^64 - 1");
  return *key;
}

// Without a tree, which would take eight times the memory of the body.
SeekRequest ReadSeek(const std::string& body, size_t max_keys) {
  SeekRequest request;
  JsonReader reader(body, 16, "the body must be {\"keys\": [feasign, …]}");
  std::string_view name;
  for (reader.BeginObject(); reader.NextKey(&name);) {
    if (name == "keys") {
      request.has_keys = true;
      request.keys.clear();
      for (reader.BeginArray(); reader.NextElement();) {
        if (request.keys.size() == max_keys) {
          throw Error(Code::kData, "more than " + std::to_string(max_keys) + " keys at once");
        }
        request.keys.push_back(ReadKey(&reader));
      }
    } else if (name == "version_required" && reader.Peek() == JsonReader::Kind::kBool) {
      request.wants_version = reader.Bool();
    } else {
      reader.Skip();
    }
  }
  reader.End();
  if (!request.has_keys) throw Error(Code::kData, "the body must be {\"keys\": [feasign, …]}");
  return request;
}

HttpReply Seek(Worker* worker, const net::Account& account, const std::string& query, const std::string& body) {
  const SeekRequest request = ReadSeek(body, worker->limits().max_text_keys / 2);
  const std::vector<uint64_t>& keys = request.keys;
  worker->catalog();
  size_t table = FindTable(*worker, query);
  const Worker::Target& target = worker->Find(worker->table_hash(table), 0);
  if (target.found.view == nullptr) throw Error(Code::kUnavailable, "no version of this model is active yet");
  size_t row_bytes = target.found.view->info().row_bytes;
  if (keys.size() * row_bytes > worker->limits().max_answer_bytes / 2)
    throw Error(Code::kData, "the answer would be too large; ask for fewer keys at once");
  const size_t answer_bytes = keys.size() * (Base64Bytes(row_bytes) + 40) + 64;
  if (!account.HasRoomFor(answer_bytes)) {
    worker->CountMiss(target.cells, Speaks::kHttp, keys.size(), Miss::kOverloaded);
    throw Error(Code::kUnavailable, "too many answers wait to be read; try again");
  }
  std::vector<uint8_t> rows(keys.size() * row_bytes), found((keys.size() + 7) / 8);
  size_t hits = 0;
  if (target.found.view->Lookup(keys.data(), keys.size(), rows.data(), found.data(), &hits) ==
      LookupResult::kWrongShard) {
    worker->CountMiss(target.cells, Speaks::kHttp, keys.size(), Miss::kWrongShard);
    throw Error(Code::kFailedPrecondition, "a key of another shard; check the order and number of shards");
  }
  worker->CountRequests(target.cells, Speaks::kHttp, 1, keys.size());
  worker->CountKeys(target.cells, Speaks::kHttp, keys.size(), hits);
  HttpReply reply;
  reply.body.resize(answer_bytes);
  char* to = reply.body.data();
  const auto put = [&](std::string_view text) { to = std::copy(text.begin(), text.end(), to); };
  put("{\"values\":[");
  for (size_t i = 0; i < keys.size(); ++i) {
    if (i != 0) put(",");
    if ((found[i / 8] >> (i % 8) & 1) != 0) {
      put("{\"status\":0,\"value\":\"");
      to = WriteBase64(rows.data() + i * row_bytes, row_bytes, to);
      put("\"}");
    } else {
      put(kMissing);
    }
  }
  reply.body.resize(static_cast<size_t>(to - reply.body.data()));
  reply.body += "]";
  if (request.wants_version) {
    reply.body += ",\"version\":\"" + std::to_string(target.found.version) + "\"";
  }
  reply.body += "}";
  return reply;
}

const ModelEntry* OnlyModel(const Catalog& catalog) {
  return catalog.models().size() == 1 ? &catalog.models()[0] : nullptr;
}

// The newest version that is loaded but not active: the "background" one of Paddle's Cube.
uint64_t BackgroundVersion(const ModelEntry& model) {
  for (auto it = model.versions.rbegin(); it != model.versions.rend(); ++it) {
    if ((*it)->version != model.active) return (*it)->version;
  }
  return 0;
}

std::string TextOf(const JsonObject& object, const char* key) { return object.Text(key).value_or(""); }

// "7", "/7" or "/5_7": the last number is the version.
uint64_t VersionOf(const JsonObject& object) {
  if (object.IsNumber("version")) return object.Uint64("version").value_or(0);
  std::string text = TextOf(object, "version");
  if (text.empty()) text = TextOf(object, "version_path");
  size_t digit = text.find_last_not_of("0123456789");
  return ParseNumber<uint64_t>(text.substr(digit == std::string::npos ? 0 : digit + 1)).value_or(0);
}

HttpReply Command(Control* control, const std::string& body) {
  const std::optional<JsonObject> parsed = JsonObject::Parse(body);
  if (!parsed) throw Error(Code::kData, "the body is not a JSON object");
  const JsonObject& request = *parsed;
  std::string command = TextOf(request, "cmd"), model = TextOf(request, "model");
  if (model.empty()) model = TextOf(request, "dict_name");
  std::shared_ptr<const Catalog> catalog = control->store().current();
  const ModelEntry* entry = nullptr;
  for (const ModelEntry& each : catalog->models()) {
    if (each.name == model) entry = &each;
  }
  if (model.empty()) entry = OnlyModel(*catalog);
  if (entry != nullptr) model = entry->name;
  if (!IsName(model)) throw Error(Code::kConfig, "say which model: {\"model\": …}; this server has none or several");
  if (command == "status") {
    ControlState state = control->state();
    bool is_loading = false;
    for (const auto& [version, record] : state.records[model]) is_loading |= record.state == LoadState::kLoading;
    auto text = [](uint64_t version) { return version == 0 ? std::string() : std::to_string(version); };
    std::string answer("{\"cur_version\":\"");
    answer.append(text(entry != nullptr ? entry->active : 0)).append("\",\"bg_version\":\"");
    answer.append(text(entry != nullptr ? BackgroundVersion(*entry) : 0));
    return {200, answer.append(is_loading ? "\",\"status\":1}" : "\",\"status\":0}")};
  }
  uint64_t version = VersionOf(request);
  bool is_reload = command == "reload_base" || command == "reload_patch";
  if (is_reload || command == "bg_load_base" || command == "bg_load_patch") {
    uint64_t before = entry != nullptr ? entry->active : 0;
    catalog.reset();
    control->LoadNow(model, version);
    if (is_reload) {
      control->Activate(model, version);
      if (before != 0 && before != version) control->Retire(model, before);
    }
  } else if (command == "bg_switch" || command == "enable") {
    if (version == 0 && entry != nullptr) version = BackgroundVersion(*entry);
    catalog.reset();
    control->Activate(model, version);
  } else if (command == "bg_unload") {
    if (version == 0 && entry != nullptr) version = BackgroundVersion(*entry);
    catalog.reset();
    if (version != 0) control->Retire(model, version);
  } else {
    throw Error(Code::kConfig, "unknown cmd '" + command.substr(0, 40) + "'");
  }
  return {200, "{}"};
}

}  // namespace

HttpReply ServeSeek(Worker* worker, const net::Account& account, const std::string& query, const std::string& body) {
  try {
    return Seek(worker, account, query, body);
  } catch (const Error& e) {
    return ErrorReply(e.code(), e.what());
  }
}

HttpReply ServeCommand(HttpContext* context, const std::string& body) {
  HttpReply reply;
  try {
    reply = Command(context->control, body);
  } catch (const Error& e) {
    reply = ErrorReply(e.code(), e.what());
    // Clients of Paddle's Cube expect 400 and 500.
    reply.status = e.code() == Code::kConfig || e.code() == Code::kData ? 400 : 500;
  } catch (const std::exception& e) {
    reply = ErrorReply(Code::kInternal, e.what());
  }
  context->is_commanded = false;
  return reply;
}

}  // namespace elasticctr::cube
