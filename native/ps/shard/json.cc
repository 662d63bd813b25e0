#include "ps/shard/json.h"

#include "util/json_reader.h"
#include "util/json_text.h"
#include "util/number.h"
#include "util/status.h"

namespace elasticctr::ps {
namespace {

constexpr uint64_t kFormat = 1;

void AppendField(std::string* out, const char* name, uint64_t value) {
  *out += std::string("\"") + name + "\": ";
  AppendNumber(out, value);
}

uint64_t ParseChunk(std::string_view text, const JsonReader& reader) {
  const auto chunk = ParseNumber<uint64_t>(text);
  if (!chunk) reader.Fail("a chunk is a number");
  return *chunk;
}

uint32_t Small(JsonReader& reader, uint64_t largest) {
  const uint64_t value = reader.Uint64();
  if (value > largest) reader.Fail("a number that is too large");
  return static_cast<uint32_t>(value);
}

void ReadAhead(JsonReader& reader, Cursors::Part* part) {
  for (reader.BeginArray(); reader.NextElement();) {
    uint64_t chunk = 0;
    uint32_t cursor = 0;
    Share share{};
    std::string_view key;
    for (reader.BeginObject(); reader.NextKey(&key);) {
      if (key == "chunk") {
        chunk = ParseChunk(reader.String(), reader);
      } else if (key == "cursor") {
        cursor = Small(reader, UINT32_MAX);
      } else if (key == "first_bucket") {
        share.first_bucket = Small(reader, 4096);
      } else if (key == "last_bucket") {
        share.last_bucket = Small(reader, 4096);
      } else if (key == "first_float") {
        share.first_float = reader.Uint64();
      } else if (key == "last_float") {
        share.last_float = reader.Uint64();
      } else {
        reader.Skip();
      }
    }
    if (share.first_bucket > share.last_bucket || share.first_float > share.last_float) {
      reader.Fail("a range that ends before it begins");
    }
    part->ahead[chunk].emplace_back(share, cursor);
  }
}

void ReadFileList(JsonReader& reader, std::vector<SavedFile>* files) {
  std::string_view key;
  for (reader.BeginObject(); reader.NextKey(&key);) {
    SavedFile file{std::string(key), 0};
    for (reader.BeginObject(); reader.NextKey(&key);) {
      if (key == "bytes") {
        file.bytes = reader.Uint64();
      } else {
        reader.Skip();
      }
    }
    files->push_back(std::move(file));
  }
}

}  // namespace

std::string ToJson(const SavedShard& saved) {
  std::string out = "{";
  AppendField(&out, "format", kFormat);
  AppendField(&(out += ", "), "shard", saved.shard);
  AppendField(&(out += ", "), "shards", saved.shards);
  AppendField(&(out += ", "), "step", saved.step);
  AppendField(&(out += ", "), "forgotten", saved.cursors.forgotten);
  out += ",\n \"cursors\": {";
  const char* comma = "";
  for (const auto& [chunk, cursor] : saved.cursors.applied) {
    out += std::string(comma) + "\"" + std::to_string(chunk) + "\": " + std::to_string(cursor);
    comma = ", ";
  }
  out += "},\n \"ahead\": [";
  comma = "";
  for (const auto& [chunk, parts] : saved.cursors.ahead) {
    for (const auto& [share, cursor] : parts) {
      out += std::string(comma) + "{\"chunk\": \"" + std::to_string(chunk) + "\"";
      AppendField(&(out += ", "), "cursor", cursor);
      AppendField(&(out += ", "), "first_bucket", share.first_bucket);
      AppendField(&(out += ", "), "last_bucket", share.last_bucket);
      AppendField(&(out += ", "), "first_float", share.first_float);
      AppendField(&(out += ", "), "last_float", share.last_float);
      out += "}";
      comma = ", ";
    }
  }
  out += "],\n \"files\": {";
  comma = "";
  for (const SavedFile& file : saved.files) {
    out += comma;
    AppendJsonString(&out, file.name);
    AppendField(&(out += ": {"), "bytes", file.bytes);
    out += "}";
    comma = ", ";
  }
  return out + "}}\n";
}

SavedShard FromJson(std::string_view text, const std::string& path) {
  SavedShard saved;
  uint64_t format = 0;
  try {
    JsonReader reader(text, 8, "not the state of a saved pserver");
    std::string_view key;
    for (reader.BeginObject(); reader.NextKey(&key);) {
      if (key == "format") {
        format = reader.Uint64();
      } else if (key == "shard") {
        saved.shard = Small(reader, 4095);
      } else if (key == "shards") {
        saved.shards = Small(reader, 4096);
      } else if (key == "step") {
        saved.step = reader.Uint64();
      } else if (key == "forgotten") {
        saved.cursors.forgotten = reader.Uint64();
      } else if (key == "cursors") {
        for (reader.BeginObject(); reader.NextKey(&key);) {
          const uint64_t chunk = ParseChunk(key, reader);
          saved.cursors.applied[chunk] = Small(reader, UINT32_MAX);
        }
      } else if (key == "ahead") {
        ReadAhead(reader, &saved.cursors);
      } else if (key == "files") {
        ReadFileList(reader, &saved.files);
      } else {
        reader.Skip();
      }
    }
    reader.End();
  } catch (const Error& error) {
    throw Error(Code::kCorruption, path + ": " + error.what() + "; take another checkpoint");
  }
  if (format != kFormat || saved.shards == 0 || saved.shard >= saved.shards) {
    throw Error(Code::kCorruption, path + ": not the state of a saved pserver of format 1; take another checkpoint");
  }
  return saved;
}

}  // namespace elasticctr::ps
