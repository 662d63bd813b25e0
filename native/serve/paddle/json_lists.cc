#include "serve/paddle/json_lists.h"

#include <algorithm>
#include <utility>

#include "serve/http/status.h"
#include "util/number.h"

namespace elasticctr::serve::paddle {
namespace {

using Kind = JsonReader::Kind;

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Nested lists of numbers or texts; the first level is rows.
class Lists {
 public:
  Lists(const Limits& limits, Tensor* tensor) : limits_(limits), tensor_(tensor) {}

  void Read(JsonReader* reader) {
    if (reader->Peek() != Kind::kArray) return ReadValue(reader);
    size_t start = tensor_->count();
    for (reader->BeginArray(); reader->NextElement();) {
      if (reader->Peek() == Kind::kArray) {
        if (tensor_->lod.empty()) {
          if (tensor_->count() != start) reader->Fail("a list has both numbers and lists");
          tensor_->lod.push_back(0);
        }
        if (tensor_->lod.size() > limits_.samples) {
          throw TooLarge("more than " + std::to_string(limits_.samples) + " samples, the limit; send fewer at once");
        }
        ReadRow(reader);
        tensor_->lod.push_back(static_cast<int32_t>(tensor_->count()));
      } else {
        if (!tensor_->lod.empty()) reader->Fail("a list has both numbers and lists");
        ReadValue(reader);
      }
    }
  }

 private:
  void ReadRow(JsonReader* reader) {
    for (reader->BeginArray(); reader->NextElement();) {
      if (reader->Peek() == Kind::kArray) {
        ReadRow(reader);
      } else {
        ReadValue(reader);
      }
    }
  }

  void ReadValue(JsonReader* reader) {
    if (tensor_->count() >= limits_.values) {
      throw TooLarge("more than " + std::to_string(limits_.values) + " values, the limit; send fewer samples at once");
    }
    if (reader->Peek() == Kind::kString) {
      if (!tensor_->ints.empty() || !tensor_->floats.empty()) reader->Fail("a list has both numbers and text");
      tensor_->texts.push_back(reader->String());
      return;
    }
    if (!tensor_->texts.empty()) reader->Fail("a list has both numbers and text");
    std::string_view text = reader->Number();
    std::optional<uint64_t> whole = ParseWhole(text);
    if (whole && tensor_->floats.empty()) {
      tensor_->ints.push_back(*whole);
      return;
    }
    // A single number with a point makes all of them floats.
    for (uint64_t value : tensor_->ints) tensor_->floats.push_back(static_cast<float>(static_cast<int64_t>(value)));
    tensor_->ints.clear();
    std::optional<double> real = ParseNumber<double>(text);
    if (!real) reader->Fail("a number is too large");
    tensor_->floats.push_back(static_cast<float>(*real));
  }

  const Limits& limits_;
  Tensor* tensor_;
};

}  // namespace

std::optional<uint64_t> ParseWhole(std::string_view text) {
  if (const auto value = ParseNumber<int64_t>(text)) return static_cast<uint64_t>(*value);
  return ParseNumber<uint64_t>(text);
}

void ReadList(JsonReader* reader, const Limits& limits, Tensor* tensor) { Lists(limits, tensor).Read(reader); }

void ReadPairValue(std::string_view text, const Limits& limits, JsonCall* call, Tensor* tensor) {
  text = Trim(text);
  if (!text.empty() && text.front() == '[') {
    JsonReader& reader = call->readers.emplace_back(text, limits.json_depth, "a value is not a JSON list");
    ReadList(&reader, limits, tensor);
    reader.End();
    return;
  }
  std::vector<uint64_t> ints;
  std::vector<float> floats;
  for (std::string_view rest = text; !text.empty();) {
    size_t comma = std::min(rest.find(','), rest.size());
    std::string_view item = Trim(rest.substr(0, comma));
    std::optional<double> real = ParseNumber<double>(item);
    if (!real) {
      tensor->texts.push_back(text);
      return;
    }
    floats.push_back(static_cast<float>(*real));
    if (std::optional<uint64_t> whole = ParseWhole(item)) ints.push_back(*whole);
    if (floats.size() > limits.values) throw Error(Code::kData, "a value has too many numbers");
    if (comma == rest.size()) break;
    rest.remove_prefix(comma + 1);
  }
  if (ints.size() == floats.size()) {
    tensor->ints = std::move(ints);
  } else {
    tensor->floats = std::move(floats);
  }
}

Places FindPlaces(const std::vector<Tensor>& tensors) {
  Places places;
  places.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!places.emplace(tensors[i].name, i).second) throw Error(Code::kData, NameOf(tensors[i]) + " is given twice");
  }
  return places;
}

void SettleRows(std::vector<Tensor>* tensors) {
  constexpr std::string_view kLod = ".lod";
  const Places places = FindPlaces(*tensors);
  bool has_rows = false;
  for (Tensor& offsets : *tensors) {
    if (!offsets.name.ends_with(kLod)) {
      has_rows = has_rows || !offsets.lod.empty();
      continue;
    }
    const auto of = places.find(offsets.name.substr(0, offsets.name.size() - kLod.size()));
    if (of == places.end()) throw Error(Code::kData, NameOf(offsets) + " has no tensor it belongs to");
    Tensor& tensor = (*tensors)[of->second];
    tensor.lod.clear();
    for (uint64_t value : offsets.ints) {
      if (value > INT32_MAX) throw Error(Code::kData, NameOf(offsets) + " has an offset that is too large");
      tensor.lod.push_back(static_cast<int32_t>(value));
    }
    has_rows = true;
  }
  std::erase_if(*tensors, [&](const Tensor& tensor) { return tensor.name.ends_with(kLod); });
  for (Tensor& tensor : *tensors) {
    if (!tensor.lod.empty()) continue;
    if (has_rows) {
      tensor.shape = {static_cast<int32_t>(tensor.count())};
    } else {
      tensor.lod = {0, static_cast<int32_t>(tensor.count())};
    }
  }
}

void AppendFeed(std::vector<Tensor> feed, const Places& places, std::vector<Tensor>* all) {
  if (feed.size() != all->size()) throw Error(Code::kData, "feeds do not all have the same names");
  for (Tensor& more : feed) {
    const auto found = places.find(more.name);
    if (found == places.end()) throw Error(Code::kData, "feeds do not all have the same names");
    Tensor& to = (*all)[found->second];
    if (more.lod.size() < 2 || to.lod.size() < 2) throw Error(Code::kData, "feeds mix single samples and batches");
    auto before = static_cast<int32_t>(to.count());
    to.ints.insert(to.ints.end(), more.ints.begin(), more.ints.end());
    to.floats.insert(to.floats.end(), more.floats.begin(), more.floats.end());
    to.texts.insert(to.texts.end(), more.texts.begin(), more.texts.end());
    for (size_t i = 1; i < more.lod.size(); ++i) to.lod.push_back(before + more.lod[i]);
  }
}

}  // namespace elasticctr::serve::paddle
