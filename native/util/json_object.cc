#include "util/json_object.h"

#include <cmath>

#include "util/json_reader.h"
#include "util/status.h"

namespace elasticctr {
namespace {

using Kind = JsonReader::Kind;

constexpr uint32_t kMaxDepth = 32;

}  // namespace

std::optional<JsonObject> JsonObject::Parse(std::string_view text) {
  try {
    JsonObject object;
    JsonReader reader(text, kMaxDepth);
    std::string_view key;
    for (reader.BeginObject(); reader.NextKey(&key);) object.members_[std::string(key)] = reader.Skip();
    reader.End();
    return object;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// The text of a value, valid because Parse has read it; empty: there is none.
std::string_view JsonObject::Find(std::string_view key) const {
  const auto found = members_.find(key);
  return found == members_.end() ? std::string_view() : found->second;
}

bool JsonObject::IsNull(std::string_view key) const { return Find(key) == "null"; }

bool JsonObject::IsNumber(std::string_view key) const {
  const std::string_view text = Find(key);
  return !text.empty() && JsonReader(text).Peek() == Kind::kNumber;
}

std::optional<uint64_t> JsonObject::Uint64(std::string_view key) const {
  if (!IsNumber(key)) return std::nullopt;
  const std::string_view text = Find(key);
  try {
    JsonReader reader(text);
    if (text.find_first_of(".eE") == std::string_view::npos) return reader.Uint64();
    const double number = reader.Double();
    if (number < 0 || number >= 0x1p64 || std::trunc(number) != number) return std::nullopt;
    return static_cast<uint64_t>(number);
  } catch (const Error&) {  // negative or too large
    return std::nullopt;
  }
}

std::optional<std::string> JsonObject::Text(std::string_view key) const {
  const std::string_view text = Find(key);
  if (text.empty() || text[0] != '"') return std::nullopt;
  return std::string(JsonReader(text).String());
}

std::optional<std::vector<JsonObject>> JsonObject::Objects(std::string_view key) const {
  const std::string_view text = Find(key);
  if (text.empty() || text[0] != '[') return std::nullopt;
  std::vector<JsonObject> objects;
  JsonReader reader(text, kMaxDepth);
  for (reader.BeginArray(); reader.NextElement();) {
    std::optional<JsonObject> object = Parse(reader.Skip());
    if (!object) return std::nullopt;
    objects.push_back(std::move(*object));
  }
  return objects;
}

}  // namespace elasticctr
