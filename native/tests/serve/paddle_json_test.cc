// Paddle Serving's HTTP bodies, from JSON to samples and back.
#include <cstring>

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

struct Reading {
  serve::Plan plan = MakePlan({"a", "b"});
  serve::Samples samples;
  serve::Request request;
  std::unique_ptr<serve::Parsed> parsed;

  // The error in a body; empty: none.
  std::string Read(const std::string& body) {
    samples.Reset(&plan);
    request.body = body;
    return Run(serve::PaddleHttpCodec(), request, &samples, &parsed).error;
  }
};

void TestJson() {
  Reading reading;
  serve::Samples& samples = reading.samples;
  const serve::Request& request = reading.request;
  const std::unique_ptr<serve::Parsed>& parsed = reading.parsed;
  const char* good[] = {
      R"({"tensor": [{"int64_data": [1, "-1"], "shape": [2, 1], "name": "a", "elem_type": 0},
          {"int64Data": [7, 8, 9], "lod": [0, 1, 3], "aliasName": "b"},
          {"tensor_content": "AAAAPwAAwD8AACBAAABgQAAAkEAAALBA", "elem_type": 1, "shape": [2, 3], "name": "dense_input"}],
          "fetch_var_names": ["prob"], "log_id": 3})",
      R"({"key": ["a", "b", "dense_input"],
          "value": ["[[1], [18446744073709551615]]", "[[7], [8, 9]]", "[[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]]"], "logid": 3})",
      R"({"feed": [{"a": [[1], [-1]], "b": [7, 8, 9], "b.lod": [0, 1, 3], "dense_input": [[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]],
          "label": [[0], [1]]}], "fetch": ["prob"], "log_id": 3})",
      R"({"feed": [{"a": 1, "b": [7], "dense_input": [0.5, 1.5, 2.5]}, {"a": -1, "b": [8, 9], "dense_input": [3.5, 4.5, 5.5]}],
          "log_id": "3"})",
  };
  const char* answers[] = {
      R"({"outputs":[{"tensor":[{"float_data":[0.75,0.25,0.25,0.75],"elem_type":1,"shape":[2,2],"name":"prob","alias_name":"prob"}],"engine_name":"ctr"}],"profile_time":[],"profile_server":false,"log_id":3,"err_no":0,"err_msg":""})",
      R"({"err_no":0,"err_msg":"","key":["prob"],"value":["[[0.75,0.25],[0.25,0.75]]"],"tensors":[]})",
      R"({"result":{"prob":[[0.75,0.25],[0.25,0.75]]}})",
      R"({"result":{"prob":[[0.75,0.25],[0.25,0.75]]}})",
  };
  for (size_t i = 0; i < std::size(good); ++i) {
    std::string error = reading.Read(good[i]);
    if (!error.empty()) std::fprintf(stderr, "%zu: %s\n", i, error.c_str());
    CHECK(error.empty() && parsed->id == "3" && samples.size() == 2);
    CHECK(samples.values(0)[samples.bags(0)[0].first] == 1 &&
          samples.values(0)[samples.bags(1)[0].first] == ~uint64_t{0});
    CHECK(samples.bags(1)[1].count == 2 && samples.values(1)[samples.bags(1)[1].first] == 8);
    CHECK(samples.dense(0)[0] == 0.5f && samples.dense(1)[2] == 5.5f);
    std::string answer = Answer(serve::PaddleHttpCodec(), request, *parsed, {0.25f, 0.75f});
    CHECK(Contains(answer, "HTTP/1.1 200") && Contains(answer, "X-Model-Version: 7\r\n"));
    CHECK(answer.substr(answer.find("\r\n\r\n") + 4) == answers[i]);
  }
  // Comma-separated numbers and single values.
  CHECK(reading.Read(R"({"key": ["a", "b", "dense"], "value": ["5", "6,7", "0.5, 1, 2"], "user": 9})").empty());
  CHECK(samples.size() == 1 && samples.bags(0)[1].count == 2 && samples.dense(0)[1] == 1.0f);
  std::string field;
  CHECK(parsed->Field("user", &field) && field == "9");
  // Any other name gets the score alone.
  CHECK(reading.Read(R"({"feed": [{"a": 1, "b": 2, "dense": [1, 2, 3]}], "fetch": ["sigmoid_0.tmp_0"]})").empty());
  CHECK(Contains(Answer(serve::PaddleHttpCodec(), request, *parsed, {0.25f}),
                 R"({"result":{"sigmoid_0.tmp_0":[[0.25]]}})"));
}

void TestBadJson() {
  Reading reading;
  const std::pair<const char*, const char*> bad[] = {
      {"", "not valid JSON"},
      {"[]", "not valid JSON"},
      {"{}", "must have"},
      {R"({"tensor": [], "feed": []})", "must have"},
      {R"({"tensor": []})", "no tensor feeds slot 'a'"},
      {R"({"tensor": [{"int64_data": [1.5]}]})", "expected an integer"},
      {R"({"tensor": [{"int64_dat": [1]}]})", "no field 'int64_dat'"},
      {R"({"tensor": [{"tensor_content": "?", "name": "a"}]})", "base64"},
      {R"({"tensor": [{"tensor_content": "AAAA", "elem_type": 1, "name": "a"}]})", "multiple of 4"},
      {R"({"tensor": [{"tensor_content": "AAAA", "elem_type": 5, "name": "a"}]})", "elem_type 5"},
      {R"({"tensor": [{"int64_data": [1], "float_data": [1], "name": "a"}]})", "more than one field"},
      {R"({"key": ["a"], "value": []})", "one value per name"},
      {R"({"key": ["a"], "value": ["[1"]})", "not a JSON list"},
      {R"({"feed": [{"a": [[1], 2]}]})", "both numbers and lists"},
      {R"({"feed": [{"a": [1, "x"]}]})", "both numbers and text"},
      {R"({"feed": [{"a": 1}, {"b": 1}]})", "same names"},
      {R"({"feed": [{"a.lod": [0, 1]}]})", "no tensor it belongs to"},
      {R"({"feed": [{"a": 1, "b": 2, "dense": [1, 2]}]})", "expected 3"},
      {R"({"feed": [{"a": 1, "b": 2, "dense": [1, 2, 3]}], "fetch": ["x", "y"]})", "cannot tell which score"},
      {R"({"feed": [{"a": 1.5, "b": 2, "dense": [1, 2, 3]}]})", "ids are whole"},
      {R"({"feed": [{"a": 1, "b": 2, "dense": ["1", "2", "3"]}]})", "has text"},
  };
  for (const auto& [body, words] : bad) {
    std::string error = reading.Read(body);
    if (!Contains(error, words)) std::fprintf(stderr, "%s: %s\n", body, error.c_str());
    CHECK(Contains(error, words));
  }
  std::string deep = R"({"feed": [{"a": )" + std::string(100'000, '[');
  CHECK(!reading.Read(deep).empty());
}

// PROMISE: Paddle JSON with thousands of names in each of many feeds | refused at the first name beyond what models
// have
void TestManyNames() {
  auto feeds = [](size_t feeds, size_t names) {
    std::string body = "{\"feed\": [";
    for (size_t i = 0; i < feeds; ++i) {
      body += i == 0 ? "{" : ",{";
      for (size_t k = 0; k < names; ++k) body += (k == 0 ? "\"n" : ",\"n") + std::to_string(k) + "\":[1]";
      body += "}";
    }
    return body + "]}";
  };
  auto read = [](const std::string& body, size_t names) {
    serve::Limits limits;
    limits.names = names;
    serve::Request request;
    request.body = body;
    try {
      serve::PaddleHttpCodec().Read(request, limits);
    } catch (const Error& error) {
      CHECK(error.code() == Code::kData);
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(read(feeds(3, 50), 50).empty());
  CHECK(read(feeds(3, 51), 50).find("over 50 names") != std::string::npos);
  CHECK(read(R"({"feed": [{"a": [1]}, {"b": [1]}]})", 50).find("same names") != std::string::npos);
  CHECK(read(R"({"feed": [{"a": [1]}, {"a": [1], "b": [1]}]})", 50).find("same names") != std::string::npos);
  CHECK(read(R"({"feed": [{"a": [1], "a": [2]}]})", 50).find("twice") != std::string::npos);
  // Without a limit of names the work still grows linearly with the bytes: with quadratic growth this took minutes.
  CHECK(read(feeds(20, 10'000), 1'000'000).empty());
  std::string pairs = "{\"key\": [", values = "], \"value\": [";
  for (size_t i = 0; i < 10'000; ++i) {
    pairs += (i == 0 ? "\"n" : ",\"n") + std::to_string(i / 2) + (i % 2 == 0 ? "\"" : ".lod\"");
    values += i == 0 ? "\"[0]\"" : ",\"[0]\"";
  }
  CHECK(read(pairs + values + "]}", 1'000'000).empty());
  CHECK(read(pairs + values + "]}", 100).find("over 100 names") != std::string::npos);
}

}  // namespace

int main() {
  TestManyNames();
  TestJson();
  TestBadJson();
}
