// KServe V2: the fields around the tensors, and answers over HTTP and gRPC.
#include <boost/json.hpp>

#include "serve/http/status.h"
#include "serve/kserve/grpc_codec.h"
#include "serve/kserve/http_codec.h"
#include "tests/check.h"
#include "tests/serve/kserve_fixture.h"
#include "util/hash.h"
#include "util/protobuf.h"

using namespace elasticctr;
using namespace elasticctr::serve;
using protobuf::Reader;
using protobuf::Writer;

namespace {

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

}  // namespace

int main() {
  TestFieldsAndOutputs();
  TestHttpAnswers();
  TestGrpcAnswers();
  return 0;
}
