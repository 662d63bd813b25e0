// KServe V2 requests in every form in which they can be sent, and the samples read from them.
#pragma once

#include <boost/json.hpp>
#include <cmath>

#include "serve/http/status.h"
#include "serve/kserve/grpc_codec.h"
#include "serve/kserve/http_codec.h"
#include "tests/check.h"
#include "util/hash.h"
#include "util/protobuf.h"

namespace elasticctr::serve {

using protobuf::Reader;
using protobuf::Writer;

enum : uint32_t { kUser, kItem, kTags };  // sparse slots
enum : uint32_t { kAge, kVector };        // dense slots

inline Plan MakePlan() {
  Plan plan;
  plan.spec.format = TextFormat::kSlot;
  plan.spec.labels = {"click"};
  plan.spec.sparse = {{"user", true, false, 10}, {"item", false, false, 10}, {"tags", true, true, 2}};
  plan.spec.dense = {{"age", 1, Transform::kLog1p, {}, {}}, {"vector", 2, Transform::kNone, {}, {}}};
  plan.sparse.resize(3);
  for (SparsePlan& slot : plan.sparse) slot.table = SparsePlan::kUnused;
  plan.dense_columns = {0, 1};
  plan.dense_width = 3;
  plan.labels = {"click"};
  plan.Seal();
  return plan;
}

inline const Plan kPlan = MakePlan();
inline uint64_t HashOf(uint32_t slot, std::string_view value) { return FeatureHash(value, kPlan.hash_seeds[slot]); }

// The values that a request gave one sample.
struct Sample {
  std::vector<std::vector<uint64_t>> sparse;
  std::vector<float> dense;
  bool operator==(const Sample&) const = default;
};

inline std::vector<Sample> SamplesOf(const Parsed& parsed, const Limits& limits) {
  Samples samples;
  samples.Reset(&kPlan);
  parsed.Fill(&samples, limits);
  CHECK(samples.requests() == 1 && samples.request(0).count == samples.size());
  std::vector<Sample> found;
  for (size_t i = 0; i < samples.size(); ++i) {
    Sample sample;
    for (uint32_t slot = 0; slot < 3; ++slot) {
      Samples::Bag bag = samples.bags(i)[slot];
      const uint64_t* values = samples.values(slot) + bag.first;
      sample.sparse.emplace_back(values, values + bag.count);
    }
    sample.dense.assign(samples.dense(i), samples.dense(i) + 3);
    found.push_back(sample);
  }
  return found;
}

// A tensor from a client's view; all ways to send it are derived from it.
struct Input {
  std::string name, type;
  std::vector<int64_t> shape;
  std::vector<uint64_t> numbers;
  std::vector<double> floats;
  std::vector<std::string> texts;
};

inline std::string RawOf(const Input& input) {
  std::string raw;
  auto put = [&](auto value) { raw.append(reinterpret_cast<const char*>(&value), sizeof value); };
  for (uint64_t number : input.numbers) {
    if (input.type == "INT32") {
      put(static_cast<int32_t>(number));
    } else {
      put(number);
    }
  }
  for (double number : input.floats) input.type == "FP32" ? put(static_cast<float>(number)) : put(number);
  for (const std::string& text : input.texts) {
    put(static_cast<uint32_t>(text.size()));
    raw += text;
  }
  return raw;
}

using Parameters = std::vector<std::pair<std::string, std::string>>;

inline std::string JsonOf(const std::vector<Input>& inputs, const Parameters& parameters, bool is_binary) {
  boost::json::object body{{"id", "r1"}};
  for (const auto& [name, value] : parameters) body["parameters"].emplace_object()[name] = value;
  boost::json::array list;
  for (const Input& input : inputs) {
    boost::json::object one{{"name", input.name}, {"datatype", input.type}};
    one["shape"] = boost::json::value_from(input.shape);
    if (is_binary) {
      one["parameters"] = {{"binary_data_size", RawOf(input).size()}};
    } else if (!input.floats.empty()) {
      boost::json::array data;
      for (double v : input.floats) data.push_back(std::isnan(v) ? boost::json::value() : boost::json::value(v));
      one["data"] = data;
    } else if (input.type == "BYTES") {
      one["data"] = boost::json::value_from(input.texts);
    } else if (input.type[0] == 'I') {
      boost::json::array data;
      for (uint64_t v : input.numbers) data.push_back(static_cast<int64_t>(v));
      one["data"] = data;
    } else {
      one["data"] = boost::json::value_from(input.numbers);
    }
    list.push_back(one);
  }
  body["inputs"] = list;
  return boost::json::serialize(body);
}

inline void WriteParameter(Writer* writer, uint32_t field, std::string_view name, std::string_view value) {
  size_t entry = writer->Begin(field);
  writer->Bytes(1, name);
  size_t choice = writer->Begin(2);
  writer->Bytes(3, value);
  writer->End(choice);
  writer->End(entry);
}

inline std::string GrpcOf(const std::vector<Input>& inputs, const Parameters& parameters, bool is_raw) {
  std::string bytes;
  Writer writer(&bytes);
  writer.Bytes(1, "ctr");
  writer.Bytes(2, "7");
  writer.Bytes(3, "r1");
  for (const auto& [name, value] : parameters) WriteParameter(&writer, 4, name, value);
  for (const Input& input : inputs) {
    size_t begin = writer.Begin(5);
    writer.Bytes(1, input.name);
    writer.Bytes(2, input.type);
    writer.PackedInt64(3, input.shape.data(), input.shape.size());
    if (!is_raw) {
      size_t contents = writer.Begin(5);
      for (uint64_t v : input.numbers) {
        if (input.type == "INT32") writer.Int32(2, static_cast<int32_t>(v));
        if (input.type == "INT64") writer.Uint64(3, v);
        if (input.type == "UINT64") writer.Uint64(5, v);
      }
      std::vector<float> floats(input.floats.begin(), input.floats.end());
      if (input.type == "FP32") writer.PackedFloat(6, floats.data(), floats.size());
      if (input.type == "FP64") {
        for (double v : input.floats) writer.Double(7, v);
      }
      for (const std::string& text : input.texts) writer.Bytes(8, text);
      writer.End(contents);
    }
    writer.End(begin);
  }
  if (is_raw) {
    for (const Input& input : inputs) writer.Bytes(7, RawOf(input));
  }
  return bytes;
}

inline std::vector<Request> AllWays(const std::vector<Input>& inputs, const Parameters& parameters) {
  std::vector<Request> requests(4);
  requests[0].codec = requests[1].codec = &KServeHttpCodec();
  requests[0].body = JsonOf(inputs, parameters, false);
  requests[1].body = JsonOf(inputs, parameters, true);
  requests[1].binary_header = requests[1].body.size();
  for (const Input& input : inputs) requests[1].body += RawOf(input);
  requests[2].codec = requests[3].codec = &KServeGrpcCodec();
  requests[2].body = GrpcOf(inputs, parameters, false);
  requests[3].body = GrpcOf(inputs, parameters, true);
  return requests;
}

inline Reply MakeReply(const std::vector<float>* scores, const Coverage* coverage) {
  static const std::string model = "ctr", variant = "live";
  static const std::vector<std::string> labels = {"click", "buy"};
  return {&model, 7, &variant, &labels, scores->size() / 2, scores->data(), coverage};
}

}  // namespace elasticctr::serve
