// Paddle Serving's messages, from bRPC frames to samples and back: valid ones are compared by value, invalid ones by
// their error, mutated ones must not crash.
#include <cstring>
#include <random>

#include "serve/brpc/frame.h"
#include "serve/paddle/brpc_codec.h"
#include "serve/paddle/http_codec.h"
#include "tests/check.h"
#include "tests/serve/paddle_fixture.h"
#include "util/protobuf.h"

using namespace elasticctr::serve::paddle;
namespace serve = elasticctr::serve;
namespace brpc = elasticctr::serve::brpc;
using elasticctr::Code;
using elasticctr::Error;
using elasticctr::protobuf::Reader;
using elasticctr::protobuf::Writer;

namespace {

constexpr char kCtr[] = "baidu.paddle_serving.predictor.ctr_prediction.CTRPredictionService";
constexpr char kGeneral[] = "baidu.paddle_serving.predictor.general_model.GeneralModelService";

std::string Meta(const std::string& service, const std::string& method, int compress = 0, int attachment = 0) {
  std::string out;
  Writer writer(&out);
  size_t request = writer.Begin(1);
  writer.Bytes(1, service);
  writer.Bytes(2, method);
  writer.Int64(3, 77);
  writer.End(request);
  if (compress != 0) writer.Int32(3, compress);
  writer.Int64(4, 1234567890123);
  if (attachment != 0) writer.Int32(5, attachment);
  size_t entry = writer.Begin(9);
  writer.Bytes(1, "user_id");
  writer.Bytes(2, "u7");
  writer.End(entry);
  return out;
}

std::string Instances(size_t count, size_t ids, size_t floats, bool packed) {
  std::string out;
  Writer writer(&out);
  for (size_t n = 0; n < count; ++n) {
    size_t instance = writer.Begin(1);
    std::vector<int64_t> values;
    std::vector<float> dense;
    for (size_t i = 0; i < ids; ++i) values.push_back(static_cast<int64_t>(100 * n + i) - 1);
    for (size_t i = 0; i < floats; ++i) dense.push_back(static_cast<float>(n) + 0.25f * static_cast<float>(i));
    if (packed) {
      writer.PackedInt64(1, values.data(), values.size());
      writer.PackedFloat(2, dense.data(), dense.size());
    } else {
      for (int64_t v : values) writer.Int64(1, v);
      for (float v : dense) writer.Float(2, v);
    }
    writer.End(instance);
  }
  return out;
}

void AddTensor(Writer* writer, const std::string& name, const std::vector<int64_t>& ints,
               const std::vector<int64_t>& shape, const std::vector<int64_t>& lod = {}) {
  size_t tensor = writer->Begin(1);
  writer->PackedInt64(1, ints.data(), ints.size());
  writer->PackedInt64(11, shape.data(), shape.size());
  if (!lod.empty()) writer->PackedInt64(12, lod.data(), lod.size());
  writer->Bytes(13, name);
  writer->End(tensor);
}

std::string Tensors() {
  std::string out;
  Writer writer(&out);
  AddTensor(&writer, "C1", {-1, 5}, {2, 1});
  AddTensor(&writer, "embedding_1.tmp_0", {7, 8, 9}, {3}, {0, 1, 3});
  size_t tensor = writer.Begin(1);
  const float dense[] = {0.5f, 1.5f, 2.5f, 3.5f, 4.5f, 5.5f};
  writer.Int32(10, 1);
  writer.PackedInt64(11, std::vector<int64_t>{2, 3}.data(), 2);
  writer.Bytes(13, "dense_input");
  writer.Bytes(15, dense, sizeof dense);
  writer.End(tensor);
  writer.Bytes(2, "prob");
  writer.Uint64(4, 99);
  return out;
}

serve::Request MakeRequest(const std::string& meta, const std::string& message) {
  serve::Request request;
  request.body = meta + message;
  request.binary_header = meta.size();
  request.call_id = 1234567890123;
  return request;
}

void TestCtr(bool packed) {
  serve::Plan plan = MakePlan({"a", "b"});
  serve::Samples samples;
  samples.Reset(&plan);
  serve::Request request = MakeRequest(Meta(kCtr, "inference"), Instances(2, 2, 3, packed));
  std::unique_ptr<serve::Parsed> parsed;
  CHECK(Run(serve::BrpcCodec(), request, &samples, &parsed).error.empty());
  CHECK(samples.size() == 2 && samples.requests() == 1);
  CHECK(samples.values(0)[samples.bags(0)[0].first] == ~uint64_t{0});  // -1 is the largest feasign
  CHECK(samples.values(1)[samples.bags(1)[1].first] == 100);
  CHECK(samples.dense(1)[0] == 1.0f && samples.dense(1)[1] == 1.25f && samples.dense(1)[2] == 1.5f);
  std::string field;
  CHECK(parsed->Field("user_id", &field) && field == "u7");
  CHECK(parsed->Field("log_id", &field) && field == "77" && !parsed->Field("other", &field));

  std::string answer = Answer(serve::BrpcCodec(), request, *parsed, {0.25f, 0.75f});
  brpc::Header header;
  CHECK(brpc::ReadHeader(reinterpret_cast<const uint8_t*>(answer.data()), &header));
  CHECK(answer.size() == brpc::kHeaderBytes + header.body_bytes);
  std::string_view body = std::string_view(answer).substr(brpc::kHeaderBytes);
  brpc::RequestMeta meta = brpc::ReadRequestMeta(body.substr(0, header.meta_bytes));
  CHECK(meta.correlation_id == 1234567890123 && meta.user_field("version") == "7" &&
        meta.user_field("coverage") == "2/3");
  Reader response(body.substr(header.meta_bytes));
  std::vector<float> probabilities;
  int64_t code = -1;
  while (response.Next()) {
    if (response.field() == 2) code = response.AsInt64();
    if (response.field() != 1) continue;
    Reader instance = response.AsMessage("CTRResInstance");
    while (instance.Next()) probabilities.push_back(instance.AsFloat());
  }
  CHECK(code == 0 && (probabilities == std::vector<float>{0.75f, 0.25f, 0.25f, 0.75f}));
}

void TestTensors() {
  serve::Plan plan = MakePlan({"a", "b"});
  serve::Samples samples;
  samples.Reset(&plan);
  serve::Request request = MakeRequest(Meta(kGeneral, "debug"), Tensors());
  std::unique_ptr<serve::Parsed> parsed;
  CHECK(Run(serve::BrpcCodec(), request, &samples, &parsed).error.empty());
  CHECK(samples.size() == 2 && parsed->id == "99");
  CHECK(samples.bags(0)[1].count == 1 && samples.bags(1)[1].count == 2);
  CHECK(samples.values(1)[samples.bags(1)[1].first + 1] == 9);
  CHECK(samples.dense(0)[2] == 2.5f && samples.dense(1)[0] == 3.5f);
  std::string answer = Answer(serve::BrpcCodec(), request, *parsed, {0.25f, 0.75f});
  brpc::Header header;
  CHECK(brpc::ReadHeader(reinterpret_cast<const uint8_t*>(answer.data()), &header));
  Reader response(std::string_view(answer).substr(brpc::kHeaderBytes + header.meta_bytes));
  std::vector<float> values;
  std::vector<int64_t> shape;
  while (response.Next()) {
    if (response.field() == 4) CHECK(response.AsUint64() == 99);
    if (response.field() != 1) continue;
    Reader output = response.AsMessage("ModelOutput");
    while (output.Next()) {
      if (output.field() == 2) CHECK(output.AsString() == "ctr");
      if (output.field() != 1) continue;
      Reader tensor = output.AsMessage("Tensor");
      while (tensor.Next()) {
        if (tensor.field() == 2) tensor.AppendFloat(&values);
        if (tensor.field() == 11) tensor.AppendInt64(&shape);
        if (tensor.field() == 14) CHECK(tensor.AsString() == "prob");
      }
    }
  }
  CHECK((shape == std::vector<int64_t>{2, 2}) && (values == std::vector<float>{0.75f, 0.25f, 0.25f, 0.75f}));
}

// Invalid requests and their error messages.
void TestRefusals() {
  serve::Plan plan = MakePlan({"a", "b"});
  serve::Samples samples;
  samples.Reset(&plan);
  auto refused = [&](const std::string& meta, const std::string& message, brpc::Errno number, const char* words) {
    std::unique_ptr<serve::Parsed> parsed;
    Outcome outcome = Run(serve::BrpcCodec(), MakeRequest(meta, message), &samples, &parsed);
    if (outcome.number != number || !Contains(outcome.error, words))
      std::fprintf(stderr, "%s\n", outcome.error.c_str());
    CHECK(outcome.number == number && Contains(outcome.error, words));
  };
  using brpc::Errno;
  std::string good = Instances(1, 2, 3, true);
  refused(Meta(kCtr, "inference"), Instances(1, 3, 3, true), Errno::kBadRequest, "3 sparse_ids; the model has 2");
  refused(Meta(kCtr, "inference"), Instances(1, 2, 2, true), Errno::kBadRequest, "2 dense_ids; the model has 3");
  refused(Meta(kCtr, "inference"), "", Errno::kBadRequest, "no instances");
  refused(Meta("no.such.Service", "inference"), good, Errno::kNoService, "no.such.Service");
  refused(Meta(kCtr, "train"), good, Errno::kNoMethod, "train");
  refused(Meta(kCtr, "inference", 2), good, Errno::kBadRequest, "compress_type 2");
  refused(Meta(kCtr, "inference", 0, 10'000), good, Errno::kBadRequest, "attachment_size is 10000");
  refused(Meta(kCtr, "inference", 0, -5), good, Errno::kBadRequest, "attachment_size is -5");
  refused(Meta(kCtr, "inference"), "\x0a\xff\x01", Errno::kBadRequest, "ctr_prediction.Request");
  std::string tensors;
  Writer writer(&tensors);
  AddTensor(&writer, "a", {1}, {1, 1});
  refused(Meta(kGeneral, "inference"), tensors, Errno::kBadRequest, "no tensor feeds slot 'b'");
  AddTensor(&writer, "b", {1, 2}, {2, 1});
  refused(Meta(kGeneral, "inference"), tensors, Errno::kBadRequest, "2 rows");
  AddTensor(&writer, "2", {1}, {1, 1});
  refused(Meta(kGeneral, "inference"), tensors, Errno::kBadRequest, "2 rows");
  tensors.clear();
  AddTensor(&writer, "a", {1}, {1, 1});
  AddTensor(&writer, "1", {1}, {1, 1});
  refused(Meta(kGeneral, "inference"), tensors, Errno::kBadRequest, "which another tensor feeds already");
  tensors.clear();
  AddTensor(&writer, "a", {1, 2}, {1, 1});
  refused(Meta(kGeneral, "inference"), tensors, Errno::kBadRequest, "2 values and a shape of 1");
  tensors.clear();
  AddTensor(&writer, "a", {1, 2}, {2}, {0, 3});
  refused(Meta(kGeneral, "inference"), tensors, Errno::kBadRequest, "lod");
  tensors.clear();
  AddTensor(&writer, "C9", {1}, {1, 1});
  refused(Meta(kGeneral, "inference"), tensors, Errno::kBadRequest, "no slot of the model; it has a, b, dense_input");
  CHECK(brpc::ErrnoOf(elasticctr::RetryLater("full", 5)) == Errno::kLimit);
  CHECK(brpc::ErrnoOf(Error(Code::kUnavailable, "")) == Errno::kLogOff);
  CHECK(brpc::ErrnoOf(Error(Code::kDeadlineExceeded, "")) == Errno::kTimedOut);
  CHECK(brpc::ErrnoOf(Error(Code::kUnauthorized, "")) == Errno::kUnauthorized);
}

// A schema whose slots are numbered from 2: "1" must not silently mean the first.
void TestPositionsAreNotGuessed() {
  serve::Plan plan = MakePlan({"2", "3"});
  serve::Samples samples;
  samples.Reset(&plan);
  serve::Request request;
  request.body = R"({"feed": [{"1": 5, "2": 6, "dense": [1, 2, 3]}], "fetch": ["prob"]})";
  std::unique_ptr<serve::Parsed> parsed;
  CHECK(Contains(Run(serve::PaddleHttpCodec(), request, &samples, &parsed).error, "'1' is no slot of the model"));
  request.body = R"({"feed": [{"C1": 5, "C2": 6, "dense": [1, 2, 3]}], "fetch": ["prob"]})";
  CHECK(Run(serve::PaddleHttpCodec(), request, &samples, &parsed).error.empty());
  CHECK(samples.values(0)[0] == 5 && samples.values(1)[0] == 6 && samples.dense(0)[1] == 2);
}

// Settings take precedence over everything else.
void TestFeedsOfSettings() {
  serve::Plan plan = MakePlan({"a", "b"});
  plan.paddle_feeds = {{"b", "a"}, {"emb_item", "b"}, {"x", "dense_input"}};
  serve::Samples samples;
  samples.Reset(&plan);
  serve::Request request;
  request.body = R"({"feed": [{"b": 5, "emb_item": 6, "x": [1, 2, 3]}]})";
  std::unique_ptr<serve::Parsed> parsed;
  CHECK(Run(serve::PaddleHttpCodec(), request, &samples, &parsed).error.empty());
  CHECK(samples.values(0)[0] == 5 && samples.values(1)[0] == 6 && samples.dense(0)[2] == 3);
}

std::string Mutate(std::string bytes, std::mt19937_64* random) {
  size_t changes = 1 + (*random)() % 4;
  for (size_t i = 0; i < changes && !bytes.empty(); ++i) {
    size_t at = (*random)() % bytes.size();
    switch ((*random)() % 5) {
      case 0: bytes[at] = static_cast<char>((*random)()); break;
      case 1: bytes[at] = static_cast<char>(bytes[at] ^ (1 << (*random)() % 8)); break;
      case 2: bytes.erase(at, 1 + (*random)() % 8); break;
      case 3: bytes.insert(at, bytes.substr((*random)() % bytes.size(), 1 + (*random)() % 16)); break;
      default: bytes.resize(at); break;
    }
  }
  return bytes;
}

void Fuzz() {
  serve::Plan plan = MakePlan({"a", "b"});
  serve::Samples samples;
  std::mt19937_64 random(7);
  std::vector<serve::Request> seeds;
  for (const std::string& message : {Instances(3, 2, 3, true), Instances(2, 2, 3, false)}) {
    seeds.push_back(MakeRequest(Meta(kCtr, "inference"), message));
  }
  seeds.push_back(MakeRequest(Meta(kGeneral, "inference"), Tensors()));
  size_t brpc_seeds = seeds.size();
  for (
      const char* body :
      {R"({"tensor": [{"int64_data": [1, 2], "shape": [2, 1], "name": "a"}, {"tensor_content": "AAAAPwAAwD8AACBA", "elem_type": 1, "shape": [1, 3], "name": "dense_input"}], "fetch_var_names": ["prob"]})",
       R"({"key": ["a", "b", "dense_input"], "value": ["[[1], [2]]", "7, 8", "[[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]]"]})",
       R"({"feed": [{"a": [[1], [-1]], "b": [7, 8, 9], "b.lod": [0, 1, 3], "dense_input": [[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]]}]})"}) {
    serve::Request request;
    request.body = body;
    seeds.push_back(std::move(request));
  }
  size_t good = 0;
  for (int round = 0; round < 60'000; ++round) {
    const serve::Request& seed = seeds[random() % seeds.size()];
    bool is_brpc = &seed < seeds.data() + brpc_seeds;
    serve::Request request;
    request.body = Mutate(seed.body, &random);
    request.binary_header = random() % 8 == 0 ? random() % 200 : seed.binary_header;
    samples.Reset(&plan);
    std::unique_ptr<serve::Parsed> parsed;
    const serve::Codec& codec = is_brpc ? serve::BrpcCodec() : serve::PaddleHttpCodec();
    if (!Run(codec, request, &samples, &parsed).error.empty()) continue;
    ++good;
    CHECK(!Answer(codec, request, *parsed, std::vector<float>(samples.size(), 0.5f)).empty());
  }
  CHECK(good > 100);
}

}  // namespace

int main() {
  TestCtr(true);
  TestCtr(false);
  TestTensors();
  TestRefusals();
  TestPositionsAreNotGuessed();
  TestFeedsOfSettings();
  Fuzz();
}
