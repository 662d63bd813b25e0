#include "serve/paddle/json.h"

#include <optional>

#include "serve/paddle/json_lists.h"

namespace elasticctr::serve::paddle {
namespace {

using Kind = JsonReader::Kind;

constexpr size_t kMaxFetch = 100;
constexpr size_t kMaxFields = 100;

// `name` in snake_case or in lowerCamelCase, which protobuf's JSON also allows.
bool IsKey(std::string_view key, std::string_view name) {
  if (key == name) return true;
  size_t at = 0;
  for (size_t i = 0; i < name.size(); ++i, ++at) {
    bool is_upper = name[i] == '_';
    if (is_upper) ++i;
    char expected = is_upper && name[i] >= 'a' && name[i] <= 'z' ? static_cast<char>(name[i] - 'a' + 'A') : name[i];
    if (at == key.size() || key[at] != expected) return false;
  }
  return at == key.size();
}

uint64_t ReadWhole(JsonReader* reader) {
  bool is_text = reader->Peek() == Kind::kString;
  std::optional<uint64_t> value = ParseWhole(is_text ? reader->String() : reader->Number());
  if (!value) reader->Fail("expected an integer of 64 bits, as a number or as text");
  return *value;
}

int32_t ReadInt32(JsonReader* reader) {
  int64_t value = reader->Int64();
  if (value != static_cast<int32_t>(value)) reader->Fail("a number does not fit 32 bits");
  return static_cast<int32_t>(value);
}

void ReadInt32s(JsonReader* reader, size_t limit, std::vector<int32_t>* to) {
  for (reader->BeginArray(); reader->NextElement();) {
    if (to->size() == limit) reader->Fail("a list has more than " + std::to_string(limit) + " numbers");
    to->push_back(ReadInt32(reader));
  }
}

[[noreturn]] void FailNames(const Limits& limits) {
  throw Error(Code::kData, "over " + std::to_string(limits.names) +
                               " names; no model here has that many slots: send only what it has");
}

void ReadNames(JsonReader* reader, const Limits& limits, std::vector<std::string_view>* to) {
  for (reader->BeginArray(); reader->NextElement();) {
    if (to->size() == limits.names) FailNames(limits);
    to->push_back(reader->String());
  }
}

bool ReadFlag(JsonReader* reader) { return reader->Peek() == Kind::kNumber ? reader->Uint64() != 0 : reader->Bool(); }

std::string DecodeBase64(JsonReader* reader, std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  uint32_t bits = 0, count = 0;
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  for (char c : text) {
    uint32_t digit;
    if (c >= 'A' && c <= 'Z') {
      digit = static_cast<uint32_t>(c - 'A');
    } else if (c >= 'a' && c <= 'z') {
      digit = static_cast<uint32_t>(c - 'a') + 26;
    } else if (c >= '0' && c <= '9') {
      digit = static_cast<uint32_t>(c - '0') + 52;
    } else if (c == '+' || c == '-') {
      digit = 62;
    } else if (c == '/' || c == '_') {
      digit = 63;
    } else {
      reader->Fail("tensor_content is not base64");
    }
    bits = bits << 6 | digit;
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes.push_back(static_cast<char>(bits >> count));
    }
  }
  return bytes;
}

// A tensor of a TensorRequest.
Tensor ReadTensor(JsonReader* reader, const Limits& limits, JsonCall* call) {
  Tensor tensor;
  std::string_view key;
  std::string_view content;
  int32_t type = 0;
  auto check = [&] {
    if (tensor.count() >= limits.values) reader->Fail("the tensor has too many values");
  };
  for (reader->BeginObject(); reader->NextKey(&key);) {
    if (reader->Peek() == Kind::kNull) {
      reader->Null();
    } else if (IsKey(key, "int64_data") || IsKey(key, "int_data") || IsKey(key, "uint32_data")) {
      for (reader->BeginArray(); reader->NextElement(); check()) tensor.ints.push_back(ReadWhole(reader));
    } else if (IsKey(key, "float_data") || IsKey(key, "float64_data")) {
      for (reader->BeginArray(); reader->NextElement(); check()) {
        tensor.floats.push_back(static_cast<float>(reader->Double()));
      }
    } else if (IsKey(key, "bool_data")) {
      for (reader->BeginArray(); reader->NextElement(); check()) tensor.ints.push_back(ReadFlag(reader) ? 1 : 0);
    } else if (key == "data" || IsKey(key, "str_data")) {
      for (reader->BeginArray(); reader->NextElement(); check()) tensor.texts.push_back(reader->String());
    } else if (IsKey(key, "elem_type")) {
      type = ReadInt32(reader);
    } else if (key == "shape") {
      ReadInt32s(reader, 16, &tensor.shape);
    } else if (key == "lod") {
      ReadInt32s(reader, limits.samples + 1, &tensor.lod);
    } else if (key == "name") {
      tensor.name = reader->String();
    } else if (IsKey(key, "alias_name")) {
      tensor.alias = reader->String();
    } else if (IsKey(key, "tensor_content")) {
      content = call->contents.emplace_back(DecodeBase64(reader, reader->String()));
    } else {
      reader->Fail("a tensor has no field '" + std::string(key.substr(0, 64)) + "'");
    }
  }
  if (!content.empty()) UnpackContent(content, type, &tensor);
  return tensor;
}

void ReadFeeds(JsonReader* reader, const Limits& limits, JsonCall* call) {
  std::vector<Tensor>& all = call->request.tensors;
  Places places;
  size_t values = 0;
  for (reader->BeginArray(); reader->NextElement();) {
    std::vector<Tensor> feed;
    std::string_view key;
    for (reader->BeginObject(); reader->NextKey(&key);) {
      if (feed.size() == limits.names) FailNames(limits);
      Tensor& tensor = feed.emplace_back();
      tensor.name = key;
      ReadList(reader, limits, &tensor);
    }
    SettleRows(&feed);
    for (const Tensor& tensor : feed) CheckValues(tensor, limits, &values);
    if (all.empty()) {
      all = std::move(feed);
      places = FindPlaces(all);
    } else {
      AppendFeed(std::move(feed), places, &all);
    }
  }
}

void MakePairs(const std::vector<std::string_view>& keys, const std::vector<std::string_view>& values,
               const Limits& limits, JsonCall* call) {
  if (keys.size() != values.size()) {
    throw Error(Code::kData, "\"key\" has " + std::to_string(keys.size()) + " names and \"value\" has " +
                                 std::to_string(values.size()) + "; give one value per name");
  }
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < keys.size(); ++i) {
    Tensor& tensor = tensors.emplace_back();
    tensor.name = keys[i];
    ReadPairValue(values[i], limits, call, &tensor);
  }
  SettleRows(&tensors);
  for (Tensor& tensor : tensors) call->request.tensors.push_back(std::move(tensor));
}

}  // namespace

const std::string* JsonCall::field(std::string_view name) const {
  for (const auto& [key, value] : fields) {
    if (key == name) return &value;
  }
  return nullptr;
}

void ReadJson(std::string_view body, const Limits& limits, JsonCall* call) {
  JsonReader& reader = call->readers.emplace_back(body, limits.json_depth);
  TensorRequest& request = call->request;
  std::vector<std::string_view> keys, values;
  bool has_tensors = false, has_pairs = false, has_feeds = false;
  std::string_view key;
  for (reader.BeginObject(); reader.NextKey(&key);) {
    if (key == "tensor" || key == "tensors") {
      has_tensors = has_tensors || key == "tensor";
      has_pairs = has_pairs || key == "tensors";
      for (reader.BeginArray(); reader.NextElement();) {
        if (request.tensors.size() == limits.names) FailNames(limits);
        request.tensors.push_back(ReadTensor(&reader, limits, call));
      }
    } else if (key == "key" || key == "value") {
      has_pairs = true;
      ReadNames(&reader, limits, key == "key" ? &keys : &values);
    } else if (key == "feed") {
      has_feeds = true;
      ReadFeeds(&reader, limits, call);
    } else if (IsKey(key, "fetch_var_names") || key == "fetch") {
      ReadNames(&reader, limits, &request.fetch);
      if (request.fetch.size() > kMaxFetch) reader.Fail("too many names to fetch");
    } else if (IsKey(key, "log_id") || key == "logid") {
      request.log_id = ReadWhole(&reader);
    } else if (IsKey(key, "profile_server")) {
      request.profile = ReadFlag(&reader);
    } else if (reader.Peek() == Kind::kString || reader.Peek() == Kind::kNumber) {
      if (call->fields.size() == kMaxFields) reader.Fail("too many keys");
      bool is_text = reader.Peek() == Kind::kString;
      call->fields.emplace_back(key, std::string(is_text ? reader.String() : reader.Number()));
    } else {
      reader.Skip();
    }
  }
  reader.End();
  if (has_tensors + has_pairs + has_feeds != 1) {
    throw Error(
        Code::kData,
        "the body must have \"tensor\", \"key\" and \"value\", or \"feed\"; see docs/migration/paddle-serving.md");
  }
  call->shape = has_tensors ? JsonCall::Shape::kTensors : has_pairs ? JsonCall::Shape::kPairs : JsonCall::Shape::kFeeds;
  if (has_pairs) MakePairs(keys, values, limits, call);
  size_t count = 0;
  for (const Tensor& tensor : request.tensors) CheckValues(tensor, limits, &count);
}

}  // namespace elasticctr::serve::paddle
