#include "serve/codec/json_samples.h"

#include "net/resp.h"
#include "serve/http/status.h"

namespace elasticctr::serve {
namespace {

constexpr size_t kMaxOrder = 4096;  // keys remembered; more than any schema has slots in one order

[[noreturn]] void Refuse(const std::string& message) { throw Error(Code::kData, message); }

std::string Cut(std::string_view text) { return net::Printable(text.substr(0, 80)); }

}  // namespace

JsonSampleReader::JsonSampleReader(Samples* samples, const Limits& limits, const Options& options)
    : samples_(samples),
      plan_(samples->plan()),
      limits_(limits),
      options_(options),
      seen_(plan_.spec.sparse.size() + plan_.spec.dense.size(), 0) {}

void JsonSampleReader::AddShared(std::string_view text) {
  JsonReader reader(text, limits_.json_depth);
  ReadSample(&reader);
  reader.End();
}

void JsonSampleReader::AddSamples(std::string_view text, const char* name) {
  JsonReader reader(text, limits_.json_depth);
  reader.BeginArray();
  size_t count = 0;
  while (reader.NextElement()) {
    if (++count > limits_.samples) {
      throw TooLarge("over " + std::to_string(limits_.samples) + " " + name + " in one request; send several");
    }
    samples_->BeginSample();
    ReadSample(&reader);
  }
  reader.End();
  if (count == 0) Refuse("\"" + std::string(name) + "\" is empty");
}

void JsonSampleReader::AddLines(std::string_view text, TextFormat format) {
  JsonReader reader(text, limits_.json_depth);
  std::string joined;
  joined.reserve(text.size());
  reader.BeginArray();
  size_t count = 0;
  while (reader.NextElement()) {
    if (++count > limits_.samples) {
      throw TooLarge("over " + std::to_string(limits_.samples) + " lines in one request; send several");
    }
    std::string_view line = reader.String();
    while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.find('\n') != std::string_view::npos) {
      Refuse("line " + std::to_string(count) + ": each of \"lines\" is one line of a log, not none and not several");
    }
    joined.append(line).push_back('\n');
  }
  reader.End();
  if (count == 0) Refuse("\"lines\" is empty");
  const size_t before = samples_->size();
  samples_->AddLines(format, joined);
  if (samples_->size() - before != count) Refuse("some of \"lines\" hold no sample");
  if (samples_->request_values() > limits_.values) {
    throw TooLarge("over " + std::to_string(limits_.values) + " values in one request; send several");
  }
}

void JsonSampleReader::ReadSample(JsonReader* reader) {
  ++sample_;
  reader->BeginObject();
  for (size_t position = 0;; ++position) {
    Known* same = position < order_.size() && reader->TakeSameKey(order_[position].text) ? &order_[position] : nullptr;
    if (same == nullptr) [[unlikely]] {
      const char* start = reader->place();
      std::string_view key;
      if (!reader->NextKey(&key)) return;
      same = &Find(key, position);
      same->text = reader->TextFrom(start);
    }
    const Known& known = *same;
    if (known.is_unknown) {
      reader->Skip();
      continue;
    }
    uint32_t& seen = seen_[known.index + (known.is_dense ? plan_.spec.sparse.size() : 0)];
    if (seen == sample_) Refuse("slot \"" + Cut(known.key) + "\" is there twice in a sample");
    seen = sample_;
    if (known.is_dense) {
      ReadDense(reader, known.index);
    } else {
      ReadSparse(reader, known.index);
    }
  }
}

JsonSampleReader::Known& JsonSampleReader::Find(std::string_view key, size_t position) {
  if (position < order_.size() && order_[position].key == key) [[likely]] {
    return order_[position];
  }
  auto found = plan_.names.find(std::string(key));
  bool is_unknown = found == plan_.names.end();
  if (is_unknown && !options_.ignores_unknown) {
    Refuse("the model has no slot \"" + Cut(key) + "\"; say \"ignore_unknown\": true to have such slots left out");
  }
  position = std::min(position, kMaxOrder);
  if (position >= order_.size()) {
    position = order_.size();
    order_.emplace_back();
  }
  Known& known = order_[position];
  known.key = key;
  known.is_unknown = is_unknown;
  known.is_dense = !is_unknown && found->second.is_dense;
  known.index = is_unknown ? 0 : found->second.index;
  return known;
}

void JsonSampleReader::ReadSparse(JsonReader* reader, uint32_t slot) {
  if (reader->IsAtString() && !options_.values_are_feasigns) [[likely]] {
    CountValue();
    return samples_->AddText(slot, reader->String());
  }
  JsonReader::Kind kind = reader->Peek();
  if (kind == JsonReader::Kind::kArray) {
    samples_->GiveSlot(slot);
    reader->BeginArray();
    while (reader->NextElement()) ReadSparseValue(reader, slot);
  } else if (kind == JsonReader::Kind::kNull) {
    reader->Null();
  } else {
    ReadSparseValue(reader, slot);
  }
}

void JsonSampleReader::CountValue() {
  if (++values_ > limits_.values) {
    throw TooLarge("over " + std::to_string(limits_.values) + " values in one request; send several");
  }
}

void JsonSampleReader::ReadSparseValue(JsonReader* reader, uint32_t slot) {
  CountValue();
  switch (reader->Peek()) {
    case JsonReader::Kind::kString: {
      std::string_view text = reader->String();
      uint64_t feasign;
      if (!options_.values_are_feasigns) {
        samples_->AddText(slot, text);
      } else if (net::ParseFeasign(text, &feasign)) {
        samples_->AddFeasign(slot, feasign);
      } else {
        Refuse("slot \"" + plan_.spec.sparse[slot].name + "\": \"" + Cut(text) + "\" is not a feasign");
      }
      return;
    }
    case JsonReader::Kind::kNumber: {
      std::string_view text = reader->Number();
      uint64_t feasign;
      if (net::ParseFeasign(text, &feasign)) {
        options_.values_are_feasigns ? samples_->AddFeasign(slot, feasign) : samples_->AddNumber(slot, feasign);
      } else if (plan_.spec.sparse[slot].hashed && !options_.values_are_feasigns &&
                 text.find_first_of(".eE") == std::string_view::npos) {
        samples_->AddText(slot, text);
      } else {
        Refuse("slot \"" + plan_.spec.sparse[slot].name + "\": " + Cut(text) +
               " is not a whole number from 0 to 2^64 - 1; send text as a string");
      }
      return;
    }
    default:
      Refuse("slot \"" + plan_.spec.sparse[slot].name + "\": a value is a string or a whole number, or a list of them");
  }
}

void JsonSampleReader::ReadDense(JsonReader* reader, uint32_t slot) {
  JsonReader::Kind kind = reader->Peek();
  if (kind == JsonReader::Kind::kArray) {
    reader->BeginArray();
    const uint32_t dim = plan_.spec.dense[slot].dim;
    uint32_t count = 0;
    while (reader->NextElement()) ReadDenseValue(reader, slot, count++);
    if (count != dim) {
      Refuse("dense slot \"" + plan_.spec.dense[slot].name + "\" has " + std::to_string(count) + " of its " +
             std::to_string(dim) + " values");
    }
  } else if (kind == JsonReader::Kind::kNull) {
    reader->Null();
  } else {
    ReadDenseValue(reader, slot, 0);
    if (plan_.spec.dense[slot].dim != 1) {
      Refuse("dense slot \"" + plan_.spec.dense[slot].name + "\" has 1 of its " +
             std::to_string(plan_.spec.dense[slot].dim) + " values");
    }
  }
}

void JsonSampleReader::ReadDenseValue(JsonReader* reader, uint32_t slot, uint32_t i) {
  CountValue();
  if (const JsonReader::Kind kind = reader->Peek(); kind == JsonReader::Kind::kNull) {
    reader->Null();
    return samples_->MissDense(slot, i);
  } else if (kind != JsonReader::Kind::kNumber) {
    Refuse("dense slot \"" + plan_.spec.dense[slot].name + "\": a value is a number or null, or a list of them");
  }
  const double value = reader->Double();
  if (options_.values_are_feasigns) {
    samples_->SetDense(slot, i, static_cast<float>(value));
  } else {
    samples_->SetRawDense(slot, i, value);
  }
}

}  // namespace elasticctr::serve
