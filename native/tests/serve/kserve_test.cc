// KServe V2: the same samples come out of JSON, binary tensors, gRPC's typed and raw contents; what is no request is a
// DataError; no bytes do harm.
#include <boost/json.hpp>
#include <cmath>
#include <limits>
#include <random>

#include "serve/http/status.h"
#include "serve/kserve/grpc_codec.h"
#include "serve/kserve/http_codec.h"
#include "tests/check.h"
#include "util/hash.h"
#include "util/protobuf.h"

using namespace elasticctr;
using namespace elasticctr::serve;
using protobuf::Reader;
using protobuf::Writer;

namespace {

enum : uint32_t { kUser, kItem, kTags };  // sparse slots
enum : uint32_t { kAge, kVector };        // dense slots

Plan MakePlan() {
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

const Plan kPlan = MakePlan();

uint64_t HashOf(uint32_t slot, std::string_view value) { return FeatureHash(value, kPlan.hash_seeds[slot]); }

// What a request gave one sample.
struct Sample {
  std::vector<std::vector<uint64_t>> sparse;
  std::vector<float> dense;
  bool operator==(const Sample&) const = default;
};

std::vector<Sample> SamplesOf(const Parsed& parsed, const Limits& limits) {
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

// A tensor as a client thinks of it; the ways to send it come from it.
struct Input {
  std::string name, type;
  std::vector<int64_t> shape;
  std::vector<uint64_t> numbers;
  std::vector<double> floats;
  std::vector<std::string> texts;
};

std::string RawOf(const Input& input) {
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

std::string JsonOf(const std::vector<Input>& inputs, const Parameters& parameters, bool is_binary) {
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

void WriteParameter(Writer* writer, uint32_t field, std::string_view name, std::string_view value) {
  size_t entry = writer->Begin(field);
  writer->Bytes(1, name);
  size_t choice = writer->Begin(2);
  writer->Bytes(3, value);
  writer->End(choice);
  writer->End(entry);
}

std::string GrpcOf(const std::vector<Input>& inputs, const Parameters& parameters, bool is_raw) {
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

std::vector<Request> AllWays(const std::vector<Input>& inputs, const Parameters& parameters) {
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

void Expect(const std::vector<Input>& inputs, const std::vector<Sample>& expected, const Parameters& parameters = {}) {
  for (const Request& request : AllWays(inputs, parameters)) {
    auto parsed = request.codec->Read(request, {});
    CHECK(parsed->id == "r1");
    CHECK(SamplesOf(*parsed, {}) == expected);
  }
}

void ExpectRefused(const std::vector<Input>& inputs, const std::string& part, const Parameters& parameters = {},
                   const Limits& limits = {}) {
  for (const Request& request : AllWays(inputs, parameters)) {
    bool is_refused = false;
    try {
      SamplesOf(*request.codec->Read(request, limits), limits);
    } catch (const Error& error) {
      is_refused = error.code() == Code::kData;
      if (std::string(error.what()).find(part) == std::string::npos) {
        std::fprintf(stderr, "expected %s, got %s\n", part.c_str(), error.what());
        CHECK(false);
      }
    }
    if (!is_refused) std::fprintf(stderr, "%s did not refuse: %s\n", request.codec->name(), part.c_str());
    CHECK(is_refused);
  }
}

float Log1p(double v) { return static_cast<float>(std::log1p(v)); }

void TestBySlot() {
  const uint64_t big = 0xfedcba9876543210ull;
  Expect({{"user", "BYTES", {2}, {}, {}, {"anna", "bert"}},
          {"item", "UINT64", {2, 2}, {big, 1, 2, 3}, {}, {}},
          {"tags", "BYTES", {2, 3}, {}, {}, {"a", "", "b", "", "", ""}},
          {"age", "FP32", {2}, {}, {1.5, 40}, {}},
          {"vector", "FP64", {2, 2}, {}, {1, 2, 3, 4}, {}}},
         {{{{HashOf(kUser, "anna")}, {big, 1}, {HashOf(kTags, "a"), HashOf(kTags, "b")}}, {Log1p(1.5), 1, 2}},
          {{{HashOf(kUser, "bert")}, {2, 3}, {}}, {Log1p(40), 3, 4}}});
  // Numbers in hashed slots are hashed as text, strings of id slots are decimal; INT64 carries all 64 bits.
  Expect({{"user", "INT64", {1}, {static_cast<uint64_t>(-5)}, {}, {}},
          {"item", "INT64", {1, 1}, {static_cast<uint64_t>(-5)}, {}, {}},
          {"tags", "INT32", {1, 2}, {7, 8}, {}, {}},
          {"age", "INT32", {1, 1}, {3}, {}, {}}},
         {{{{HashOf(kUser, "-5")}, {static_cast<uint64_t>(-5)}, {HashOf(kTags, "7"), HashOf(kTags, "8")}},
           {Log1p(3), 0, 0}}});
  Expect({{"item", "BYTES", {1}, {}, {}, {"18446744073709551615"}}}, {{{{}, {~0ull}, {}}, {0, 0, 0}}});
  // NaN, null in JSON: no value.
  Expect({{"age", "FP64", {2}, {}, {std::nan(""), 2}, {}}},
         {{{{}, {}, {}}, {0, 0, 0}}, {{{}, {}, {}}, {Log1p(2), 0, 0}}});
  Expect({{"user", "UINT64", {1}, {9}, {}, {}}, {"age", "FP32", {1}, {}, {4}, {}}}, {{{{9}, {}, {}}, {4, 0, 0}}},
         {{"values", "feasigns"}});
}

void TestLengths() {
  Expect({{"tags", "BYTES", {5}, {}, {}, {"a", "b", "c", "d", "e"}},
          {"tags.lengths", "INT32", {3}, {3, 0, 2}, {}, {}},
          {"item", "UINT64", {3}, {1, 2, 3}, {}, {}}},
         {{{{}, {1}, {HashOf(kTags, "b"), HashOf(kTags, "c")}}, {0, 0, 0}},
          {{{}, {2}, {}}, {0, 0, 0}},
          {{{}, {3}, {HashOf(kTags, "d"), HashOf(kTags, "e")}}, {0, 0, 0}}});
  ExpectRefused({{"item", "UINT64", {3}, {1, 2, 3}, {}, {}}, {"item.lengths", "INT64", {2}, {1, 1}, {}, {}}},
                "add up to 2 of 3");
  ExpectRefused({{"item", "UINT64", {3}, {1, 2, 3}, {}, {}}, {"item.lengths", "INT64", {2}, {1, 3}, {}, {}}},
                "more than the 3");
  ExpectRefused(
      {{"item", "UINT64", {1}, {1}, {}, {}}, {"item.lengths", "INT64", {2}, {static_cast<uint64_t>(-1), 2}, {}, {}}},
      "more than the 1");
  ExpectRefused({{"item.lengths", "INT64", {2}, {1, 1}, {}, {}}}, "no input 'item'");
  ExpectRefused({{"age", "FP32", {1}, {}, {1}, {}}, {"age.lengths", "INT64", {1}, {1}, {}, {}}}, "no lengths");
}

void TestShared() {
  Sample one{{{HashOf(kUser, "anna")}, {1}, {}}, {Log1p(30), 0, 0}};
  Sample two = one;
  two.sparse[kItem] = {2};
  Expect({{"user", "BYTES", {1}, {}, {}, {"anna"}},
          {"age", "FP32", {1, 1}, {}, {30}, {}},
          {"item", "UINT64", {2}, {1, 2}, {}, {}}},
         {one, two});
  ExpectRefused({{"user", "BYTES", {3}, {}, {}, {"a", "b", "c"}}, {"item", "UINT64", {2}, {1, 2}, {}, {}}},
                "where another input is for 3");
}

void TestPacked() {
  std::vector<Input> inputs = {{"feasigns", "UINT64", {2, 3}, {1, 2, 3, 4, 5, 6}, {}, {}},
                               {"dense", "FP32", {2, 3}, {}, {1, 2, 3, 4, 5, 6}, {}}};
  Expect(inputs, {{{{1}, {2}, {3}}, {1, 2, 3}}, {{{4}, {5}, {6}}, {4, 5, 6}}});
  Expect(inputs, {{{{1}, {2}, {3}}, {Log1p(1), 2, 3}}, {{{4}, {5}, {6}}, {Log1p(4), 5, 6}}}, {{"values", "raw"}});
  Expect({{"feasigns", "INT64", {4}, {1, 2, 3, 4}, {}, {}},
          {"feasigns.lengths", "INT32", {2, 3}, {0, 1, 2, 1, 0, 0}, {}, {}}},
         {{{{}, {1}, {2, 3}}, {0, 0, 0}}, {{{4}, {}, {}}, {0, 0, 0}}});
  // As they lie, and a value at a time because one is shared: the same.
  Expect({{"feasigns", "UINT64", {2, 3}, {1, 2, 3, 4, 5, 6}, {}, {}}, {"dense", "FP32", {1, 3}, {}, {7, 8, 9}, {}}},
         {{{{1}, {2}, {3}}, {7, 8, 9}}, {{{4}, {5}, {6}}, {7, 8, 9}}});
  Expect({{"feasigns", "INT64", {1, 3}, {1, 2, 3}, {}, {}}}, {{{{1}, {2}, {3}}, {0, 0, 0}}});
  ExpectRefused({{"feasigns", "UINT64", {2, 2}, {1, 2, 3, 4}, {}, {}}}, "3 values per sample");
  ExpectRefused({{"feasigns", "UINT64", {1, 3}, {1, 2, 3}, {}, {}}, {"item", "UINT64", {1}, {1}, {}, {}}},
                "given twice");
  ExpectRefused(inputs, "'raw' or 'feasigns'", {{"values", "hashes"}});
}

void TestLines() {
  Sample first{{{HashOf(kUser, "anna")}, {5}, {}}, {Log1p(3), 0, 0}};
  Sample second{{{}, {6, 7}, {HashOf(kTags, "x")}}, {0, 0, 0}};
  std::vector<Input> lines = {{"lines", "BYTES", {2}, {}, {}, {"user:anna item:5 age:3", "item:6 item:7 tags:x\n"}}};
  Expect(lines, {first, second});
  Expect(lines, {first, second}, {{"format", "slot"}});
  ExpectRefused(lines, "'format' must be", {{"format", "xml"}});
  ExpectRefused({{"lines", "BYTES", {2}, {}, {}, {"item:5", ""}}}, "line 2 is empty");
  ExpectRefused({{"lines", "BYTES", {1}, {}, {}, {"item:5\nitem:6"}}}, "more than one");
  ExpectRefused({{"lines", "BYTES", {2}, {}, {}, {"item:5", "item:x"}}}, "line 2");
  ExpectRefused({{"lines", "BYTES", {1}, {}, {}, {"item:5"}}, {"item", "UINT64", {1}, {1}, {}, {}}}, "no other input");
}

void TestRefusals() {
  ExpectRefused({}, "no inputs");
  ExpectRefused({{"nothing", "UINT64", {1}, {1}, {}, {}}}, "no such slot");
  ExpectRefused({{"item", "FP32", {1}, {}, {1}, {}}}, "takes UINT64");
  ExpectRefused({{"age", "BYTES", {1}, {}, {}, {"1"}}}, "takes numbers");
  ExpectRefused({{"item", "UINT64", {0}, {}, {}, {}}}, "no samples");
  ExpectRefused({{"item", "UINT64", {-1}, {}, {}, {}}}, "below 0");
  ExpectRefused({{"item", "UINT64", {1, 1, 1}, {1}, {}, {}}}, "one or two dimensions");
  ExpectRefused({{"item", "UINT64", {1ll << 40, 1ll << 40}, {1}, {}, {}}}, "too many elements");
  ExpectRefused({{"item", "UINT64", {2}, {1}, {}, {}}}, "elements");
  ExpectRefused({{"item", "BYTES", {2}, {}, {}, {"1"}}}, "");
  ExpectRefused({{"item", "INT32", {1}, {static_cast<uint64_t>(-1)}, {}, {}}}, "not below 0");
  ExpectRefused({{"vector", "FP32", {1}, {}, {1}, {}}}, "2 values per sample");
  ExpectRefused({{"age", "FP32", {1, 2}, {}, {1, 2}, {}}}, "1 values per sample");
  ExpectRefused({{"item", "UINT64", {1}, {1}, {}, {}}, {"item", "UINT64", {1}, {1}, {}, {}}}, "given twice");
  ExpectRefused({{"user", "BYTES", {1}, {}, {}, {"a"}}}, "takes UINT64 or INT64", {{"values", "feasigns"}});
  ExpectRefused({{"item", "UINT64", {1}, {1}, {}, {}}}, "microseconds", {{"timeout", "soon"}});
  for (double odd : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    std::vector<Input> packed = {{"feasigns", "UINT64", {2, 3}, {1, 2, 3, 4, 5, 6}, {}, {}},
                                 {"dense", "FP32", {2, 3}, {}, {1, 2, 3, 4, 5, odd}, {}}};
    for (const Request& request : AllWays(packed, {})) {
      if (request.codec == &KServeHttpCodec() && request.binary_header == 0) continue;  // JSON has no such numbers
      std::string why;
      try {
        SamplesOf(*request.codec->Read(request, {}), {});
      } catch (const Error& error) {
        why = error.what();
      }
      CHECK(why.find("'vector'") != why.npos && why.find("finite") != why.npos);
    }
  }
  Limits limits;
  limits.samples = 2;
  ExpectRefused({{"item", "UINT64", {3}, {1, 2, 3}, {}, {}}}, "at most 2", {}, limits);
  limits = {};
  limits.values = 3;
  ExpectRefused({{"item", "UINT64", {4}, {1, 2, 3, 4}, {}, {}}}, "", {}, limits);
}

Request HttpRequest(const std::string& body) {
  Request request;
  request.codec = &KServeHttpCodec();
  request.body = body;
  return request;
}

void TestFieldsAndOutputs() {
  Request request = HttpRequest(
      R"({"parameters": {"user_id": 17, "test": true, "timeout": 2500}, "outputs": [{"name": "scores"}],
          "inputs": [{"data": [["a\u00e9"]], "name": "user", "shape": [1, 1], "datatype": "BYTES"},
                     {"name": "item", "shape": [1], "datatype": "UINT64", "data": ["18446744073709551615"]}]})");
  auto parsed = request.codec->Read(request, {});
  std::string value;
  CHECK(parsed->timeout_ms == 3);
  CHECK(parsed->Field("user_id", &value) && value == "17");
  CHECK(parsed->Field("test", &value) && value == "true");
  CHECK(parsed->Field("user", &value) && value == "aé");
  CHECK(parsed->Field("item", &value) && value == "18446744073709551615");
  CHECK(!parsed->Field("age", &value));
  CHECK((SamplesOf(*parsed, {}) == std::vector<Sample>{{{{HashOf(kUser, "aé")}, {~0ull}, {}}, {0, 0, 0}}}));

  for (
      const char* bad :
      {R"({"inputs": [{"name": "item", "shape": [1], "datatype": "UINT64", "data": [1], "data": [1]}]})",
       R"({"inputs": [{"name": "item", "shape": [1], "datatype": "BYTES", "data": ["1"], "datatype": "UINT64"}]})",
       R"({"inputs": [{"name": "item", "shape": [1], "datatype": "UINT64"}]})",
       R"({"inputs": [{"name": "item", "datatype": "UINT64", "data": [1]}]})",
       R"({"inputs": [{"name": "item", "shape": [1], "datatype": "FP16", "data": [1]}]})",
       R"({"inputs": [{"name": "item", "shape": [1], "datatype": "UINT64", "data": [1.5]}]})",
       R"({"inputs": [{"name": "item", "shape": [1], "datatype": "UINT64", "parameters": {"binary_data_size": 8}}]})",
       R"({"inputs": [{"name": "item", "shape": [1], "datatype": "UINT64", "parameters": {"shared_memory_region": "r"}}]})",
       R"({"inputs": [], "outputs": [{"name": "logits"}]})",
       R"({"inputs": [], "outputs": [{"name": "scores"}, {"name": "scores"}]})",
       R"({"inputs": [], "outputs": [{"name": "scores", "parameters": {"classification": 3}}]})",
       R"({"inputs": [], "parameters": {"a": []}})", "[]", ""}) {
    bool is_refused = false;
    try {
      Request one = HttpRequest(bad);
      one.codec->Read(one, {});
    } catch (const Error& error) {
      is_refused = error.code() == Code::kData;
    }
    CHECK(is_refused);
  }
}

Reply MakeReply(const std::vector<float>* scores, const Coverage* coverage) {
  static const std::string model = "ctr", variant = "live";
  static const std::vector<std::string> labels = {"click", "buy"};
  return {&model, 7, &variant, &labels, scores->size() / 2, scores->data(), coverage};
}

std::string BodyOf(const std::string& answer) { return answer.substr(answer.find("\r\n\r\n") + 4); }

void TestHttpAnswers() {
  std::vector<float> scores = {0.25f, 0.5f, 0.1f, 1.0f};
  Coverage coverage;
  coverage.asked = 26;
  coverage.found = 3;
  coverage.is_below = true;
  coverage.dead_shards = {1};
  Reply reply = MakeReply(&scores, &coverage);
  Request request = HttpRequest(R"({"id": "a\"b", "inputs": []})");
  auto parsed = request.codec->Read(request, {});
  std::string answer = request.codec->Format(request, parsed.get(), reply);
  CHECK(answer.starts_with("HTTP/1.1 200"));
  boost::json::value body = boost::json::parse(BodyOf(answer));
  CHECK(body.at("model_name") == "ctr" && body.at("model_version") == "7" && body.at("id") == "a\"b");
  CHECK(body.at("parameters").at("variant") == "live" && body.at("parameters").at("coverage_asked") == 26);
  CHECK(body.at("parameters").at("coverage_found") == 3 && body.at("parameters").at("degraded") == true);
  CHECK(body.at("parameters").at("reasons") == "shard 1 did not answer; found 3 of 26 rows");
  CHECK(body.at("parameters").at("labels") == "click,buy");
  const boost::json::value& output = body.at("outputs").at(0);
  CHECK(output.at("name") == "scores" && output.at("datatype") == "FP32");
  CHECK(output.at("shape") == boost::json::parse("[2,2]") &&
        output.at("data") == boost::json::parse("[0.25,0.5,0.1,1]"));

  for (const char* binary :
       {R"({"inputs": [], "parameters": {"binary_data_output": true}})",
        R"({"inputs": [], "outputs": [{"name": "scores", "parameters": {"binary_data": true}}]})"}) {
    request = HttpRequest(binary);
    parsed = request.codec->Read(request, {});
    answer = request.codec->Format(request, parsed.get(), reply);
    size_t at = answer.find("Inference-Header-Content-Length: ");
    CHECK(at != answer.npos);
    size_t head = std::stoul(answer.substr(at + 33));
    std::string all = BodyOf(answer);
    CHECK(all.size() == head + 16);
    CHECK(all.substr(head) == std::string(reinterpret_cast<const char*>(scores.data()), 16));
    CHECK(boost::json::parse(all.substr(0, head)).at("outputs").at(0).at("parameters").at("binary_data_size") == 16);
  }
  answer = request.codec->FormatError(request, nullptr, TooLarge("too \"large\""));
  CHECK(answer.starts_with("HTTP/1.1 413") && boost::json::parse(BodyOf(answer)).at("error") == "too \"large\"");
}

void TestGrpcAnswers() {
  std::vector<float> scores = {0.25f, 0.5f};
  Coverage coverage;
  coverage.asked = 300;
  coverage.found = 299;
  Request request;
  request.codec = &KServeGrpcCodec();
  request.body = GrpcOf({{"item", "UINT64", {1}, {1}, {}, {}}}, {}, true);
  auto parsed = request.codec->Read(request, {});
  CHECK(parsed->model == "ctr" && parsed->version == "7");
  std::string answer = request.codec->Format(request, parsed.get(), MakeReply(&scores, &coverage));
  CHECK(answer[0] == 0);
  Reader reader(std::string_view(answer).substr(1));
  std::string model, version, id, raw;
  std::vector<int64_t> shape;
  uint64_t asked = 0;
  while (reader.Next()) {
    if (reader.field() == 1) model = reader.AsString();
    if (reader.field() == 2) version = reader.AsString();
    if (reader.field() == 3) id = reader.AsString();
    if (reader.field() == 6) raw = reader.AsBytes();
    if (reader.field() == 5) {
      for (Reader output = reader.AsMessage("output"); output.Next();) {
        if (output.field() == 3) output.AppendInt64(&shape);
      }
    }
    if (reader.field() == 4) {
      Reader entry = reader.AsMessage("entry");
      CHECK(entry.Next());
      if (entry.AsString() != "coverage_asked") continue;
      CHECK(entry.Next());
      Reader value = entry.AsMessage("value");
      CHECK(value.Next() && value.field() == 2);
      asked = value.AsUint64();
    }
  }
  CHECK(model == "ctr" && version == "7" && id == "r1" && asked == 300);
  CHECK((shape == std::vector<int64_t>{1, 2}) && raw == std::string(reinterpret_cast<const char*>(scores.data()), 8));
  auto status = [&](const Error& error) { return int{request.codec->FormatError(request, nullptr, error)[0]}; };
  CHECK(status(Error(Code::kData, "x")) == 3 && status(RetryLater("x", 5)) == 8 &&
        status(Error(Code::kUnavailable, "x")) == 14);
  CHECK(status(Error(Code::kNotFound, "x")) == 5 && status(Error(Code::kDeadlineExceeded, "x")) == 4);
  CHECK(request.codec->FormatError(request, nullptr, Error(Code::kData, "why")).substr(1) == "why");
}

void TestFuzz() {
  std::mt19937_64 random(5);
  std::vector<Input> inputs = {{"user", "BYTES", {1}, {}, {}, {"anna"}},
                               {"item", "UINT64", {3}, {1, 2, 3}, {}, {}},
                               {"tags", "BYTES", {4}, {}, {}, {"a", "b", "c", "d"}},
                               {"tags.lengths", "INT32", {3}, {2, 0, 2}, {}, {}},
                               {"age", "FP32", {3}, {}, {1, 2, 3}, {}},
                               {"vector", "FP64", {3, 2}, {}, {1, 2, 3, 4, 5, 6}, {}}};
  std::vector<Request> seeds = AllWays(inputs, {{"values", "raw"}, {"timeout", "100"}});
  for (Request& seed : AllWays({{"feasigns", "UINT64", {2, 3}, {1, 2, 3, 4, 5, 6}, {}, {}},
                                {"dense", "FP32", {2, 3}, {}, {1, 2, 3, 4, 5, 6}, {}}},
                               {}))
    seeds.push_back(seed);
  for (Request& seed : AllWays({{"lines", "BYTES", {2}, {}, {}, {"user:anna item:5 age:3", "item:6"}}}, {}))
    seeds.push_back(seed);
  size_t good = 0;
  Samples samples;
  for (int round = 0; round < 12'000; ++round) {
    Request request = seeds[random() % seeds.size()];
    std::string bytes = request.body;
    for (size_t i = 0, changes = 1 + random() % 3; i < changes && !bytes.empty(); ++i) {
      size_t at = random() % bytes.size();
      switch (random() % 5) {
        case 0: bytes[at] = static_cast<char>(random()); break;
        case 1: bytes.erase(at, 1 + random() % 4); break;
        case 2: bytes.insert(at, 1 + random() % 4, "{}[]\",:\\0123\xff\x01"[random() % 14]); break;
        case 3: bytes[at] = "0123456789"[random() % 10]; break;
        default: bytes.resize(at); break;
      }
    }
    if (random() % 8 == 0) request.binary_header = random() % (bytes.size() + 8);
    // An exact copy on the heap: reading past its end is seen.
    request.body = std::string();
    request.body.reserve(bytes.size());
    request.body = bytes;
    samples.Reset(&kPlan);
    try {
      auto parsed = request.codec->Read(request, {});
      std::string value;
      parsed->Field("user", &value);
      parsed->Field("item", &value);
      parsed->Fill(&samples, {});
      CHECK(samples.requests() == 1 && samples.size() > 0);
      std::vector<float> scores(samples.size() * 2, 0.5f);
      Coverage coverage;
      request.codec->Format(request, parsed.get(), MakeReply(&scores, &coverage));
      ++good;
    } catch (const Error& error) {
      CHECK(error.code() == Code::kData);
      request.codec->FormatError(request, nullptr, error);
      samples.DropRequest();
      CHECK(samples.size() == 0);
    }
  }
  CHECK(good > 100);
}

}  // namespace

int main() {
  TestBySlot();
  TestLengths();
  TestShared();
  TestPacked();
  TestLines();
  TestRefusals();
  TestFieldsAndOutputs();
  TestHttpAnswers();
  TestGrpcAnswers();
  TestFuzz();
  return 0;
}
