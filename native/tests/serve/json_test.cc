// Plain JSON: how requests are read and refused, the format of answers; and seeded mutations of requests, which must be
// read or refused, nothing else. Run under the sanitizers.
#include "serve/codec/json.h"

#include <boost/json.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "serve/http/status.h"
#include "tests/check.h"
#include "util/hash.h"

using namespace elasticctr;
using namespace elasticctr::serve;
namespace json = boost::json;

namespace {

enum Slot : uint32_t { kUser, kItem, kTags };

// user: hashed; item: feasigns; tags: hashed, the last 2 kept; price: log1p; place: two raw numbers.
Plan MakePlan() {
  Plan plan;
  plan.spec.format = TextFormat::kSlot;
  plan.spec.labels = {"click"};
  plan.spec.sparse = {{"user", true, false, 4}, {"item", false, false, 4}, {"tags", true, true, 2}};
  plan.spec.dense = {{"price", 1, Transform::kLog1p, {}, {}}, {"place", 2, Transform::kNone, {}, {}}};
  plan.sparse.resize(3);
  for (SparsePlan& slot : plan.sparse) slot.table = SparsePlan::kUnused;
  plan.dense_columns = {0, 1};
  plan.dense_width = 3;
  plan.labels = {"click"};
  plan.Seal();
  return plan;
}

const Plan& ThePlan() {
  static const Plan plan = MakePlan();
  return plan;
}

void Fill(const std::string& body, Samples* samples, const Limits& limits = {}) {
  Request request;
  request.body = body;
  auto parsed = JsonCodec().Read(request, limits);
  samples->Reset(&ThePlan());
  parsed->Fill(samples, limits);
}

std::vector<uint64_t> ValuesOf(const Samples& samples, size_t sample, uint32_t slot) {
  const Samples::Bag bag = samples.bags(sample)[slot];
  const uint64_t* first = samples.values(slot) + bag.first;
  return {first, first + bag.count};
}

uint64_t HashOf(uint32_t slot, const std::string& text) { return FeatureHash(text, ThePlan().hash_seeds[slot]); }

using Values = std::vector<uint64_t>;

// One number of a dense slot may be missing: it is the default of training, not the other candidates' shared value.
void TestMissingNumbers() {
  Samples samples;
  Fill(R"({"samples": [{"place": [null, 2]}, {"place": [1, null]}, {"place": null}, {"price": null}]})", &samples);
  CHECK(samples.dense(0)[1] == 0 && samples.dense(0)[2] == 2);
  CHECK(samples.dense(1)[1] == 1 && samples.dense(1)[2] == 0);
  CHECK(samples.dense(2)[1] == 0 && samples.dense(3)[0] == 0);
  Fill(R"({"user": {"place": [7, 8]}, "candidates": [{"place": [null, 2]}, {}]})", &samples);
  CHECK(samples.dense(0)[1] == 0 && samples.dense(0)[2] == 2);
  CHECK(samples.dense(1)[1] == 7 && samples.dense(1)[2] == 8);
}

void TestSamples() {
  Samples samples;
  Fill(R"({"samples": [{"user": "anna", "item": [1, "18446744073709551615"], "price": 3, "place": [0.5, -2e1]},
                       {"item": 18446744073709551615, "tags": ["a", "\u00e4\ud83d\ude00", "c"], "user": 7},
                       {"user": -5, "tags": null, "item": []}, {}]})",
       &samples);
  CHECK(samples.size() == 4 && samples.requests() == 1 && samples.request(0).count == 4);
  CHECK((ValuesOf(samples, 0, kUser) == Values{HashOf(kUser, "anna")}));
  CHECK((ValuesOf(samples, 0, kItem) == Values{1, std::numeric_limits<uint64_t>::max()}));
  CHECK(std::fabs(samples.dense(0)[0] - std::log1p(3.0f)) < 1e-6f && samples.dense(0)[1] == 0.5f &&
        samples.dense(0)[2] == -20.0f);
  CHECK((ValuesOf(samples, 1, kItem) == Values{std::numeric_limits<uint64_t>::max()}));
  CHECK((ValuesOf(samples, 1, kTags) == Values{HashOf(kTags, "\xC3\xA4\xF0\x9F\x98\x80"), HashOf(kTags, "c")}));
  CHECK((ValuesOf(samples, 1, kUser) == Values{HashOf(kUser, "7")}));
  CHECK((ValuesOf(samples, 2, kUser) == Values{HashOf(kUser, "-5")}));
  CHECK(ValuesOf(samples, 2, kTags).empty() && ValuesOf(samples, 3, kItem).empty() && samples.dense(3)[0] == 0);
}

void TestCandidates() {
  Samples samples;
  Fill(R"({"candidates": [{"item": 1}, {"tags": ["x"], "price": 0, "item": 2}, {"tags": []}],
           "user": {"user": "u", "tags": ["t"], "price": 5}, "uid": 12})",
       &samples);
  CHECK(samples.size() == 3);
  for (size_t i = 0; i < 3; ++i) CHECK((ValuesOf(samples, i, kUser) == Values{HashOf(kUser, "u")}));
  CHECK((ValuesOf(samples, 0, kTags) == Values{HashOf(kTags, "t")}));
  CHECK((ValuesOf(samples, 1, kTags) == Values{HashOf(kTags, "x")}));
  CHECK(ValuesOf(samples, 2, kTags).empty());
  CHECK((ValuesOf(samples, 1, kItem) == Values{2}));
  CHECK(samples.dense(0)[0] == std::log1p(5.0f) && samples.dense(1)[0] == 0);
}

void TestFeasigns() {
  Samples samples;
  Fill(R"({"values": "feasigns", "samples": [{"user": ["12", 13], "price": -1.5}]})", &samples);
  CHECK((ValuesOf(samples, 0, kUser) == Values{12, 13}) && samples.dense(0)[0] == -1.5f);
  Fill(R"({"ignore_unknown": true, "samples": [{"nobody": {"deep": [1]}, "user": "a", "color": 1}, {"color": 2}]})",
       &samples);
  CHECK(samples.size() == 2 && (ValuesOf(samples, 0, kUser) == Values{HashOf(kUser, "a")}));
}

void TestLines() {
  Samples samples;
  Fill(R"({"lines": ["click:1 user:anna item:5 item:6\n", "click:0 user:bert"]})", &samples);
  CHECK(samples.size() == 2 && (ValuesOf(samples, 0, kItem) == Values{5, 6}) &&
        (ValuesOf(samples, 1, kUser) == Values{HashOf(kUser, "bert")}));
}

void TestFields() {
  Request request;
  request.body =
      R"({"samples": [{}], "uid": "a\nb", "number": 12.50, "flag": true, "list": [1], "id": 77, "timeout_ms": 20})";
  auto parsed = JsonCodec().Read(request, {});
  std::string value;
  CHECK(parsed->Field("uid", &value) && value == "a\nb");
  CHECK(parsed->Field("number", &value) && value == "12.50");
  CHECK(parsed->Field("flag", &value) && value == "true");
  CHECK(parsed->Field("id", &value) && value == "77" && parsed->id == "77" && parsed->timeout_ms == 20);
  CHECK(!parsed->Field("list", &value) && !parsed->Field("nothing", &value));
  request.body = R"({"user": {"uid": 9, "tags": ["x"]}, "candidates": [{}]})";
  parsed = JsonCodec().Read(request, {});
  CHECK(parsed->Field("uid", &value) && value == "9" && !parsed->Field("tags", &value));
}

// The status with which a body is refused; 0: it is accepted.
int StatusOf(const std::string& body, const Limits& limits = {}) {
  static Samples samples;
  try {
    Fill(body, &samples, limits);
    return 0;
  } catch (const Error& error) {
    CHECK(error.code() == Code::kData && std::strlen(error.what()) > 10);
    return HttpStatusOf(error);
  }
}

void TestRefusals() {
  for (const char* body : {
           "",
           "[]",
           "{",
           "{}",
           "null",
           R"({"samples": []})",
           R"({"samples": {}})",
           R"({"samples": [1]})",
           R"({"samples": [{}]} x)",
           R"({"samples": [{}], "samples": [{}]})",
           R"({"samples": [{}], "a": 1, "a": 1})",
           R"({"samples": [{}], "lines": ["x"]})",
           R"({"user": {}, "samples": [{}]})",
           R"({"user": {}})",
           R"({"samples": [{"nobody": 1}]})",
           R"({"samples": [{"user": "a", "user": "b"}]})",
           R"({"samples": [{"user": 1.5}]})",
           R"({"samples": [{"user": true}]})",
           R"({"samples": [{"user": {}}]})",
           R"({"samples": [{"user": [[1]]}]})",
           R"({"samples": [{"item": "x"}]})",
           R"({"samples": [{"item": -1}]})",
           R"({"samples": [{"item": 18446744073709551616}]})",
           R"({"samples": [{"price": "5"}]})",
           R"({"samples": [{"price": NaN}]})",
           R"({"samples": [{"price": 1e999}]})",
           R"({"samples": [{"price": [1, 2]}]})",
           R"({"samples": [{"place": 1}]})",
           R"({"samples": [{"place": [1]}]})",
           R"({"samples": [{"price": 01}]})",
           R"({"samples": [{"user": "\ud800"}]})",
           R"({"samples": [{"user": "\x"}]})",
           R"({"samples": [{},]})",
           R"({"lines": []})",
           R"({"lines": [""]})",
           R"({"lines": [1]})",
           R"({"lines": ["a\nb"]})",
           R"({"lines": ["x"], "format": "tsv"})",
           R"({"lines": ["x"], "format": 1})",
           R"({"samples": [{}], "format": "slot"})",
           R"({"samples": [{}], "values": "numbers"})",
           R"({"samples": [{}], "timeout_ms": 0})",
           R"({"samples": [{}], "timeout_ms": "1"})",
           R"({"samples": [{}], "id": {}})",
           R"({"samples": [{}], "id": false})",
           R"({"samples": [{}], "id": null})",
           R"({"samples": [{}], "ignore_unknown": 1})",
           R"({"samples": [[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]})",
           "{\"samples\": [{\"user\": \"\x01\"}]}",
           "{\"samples\": [{\"user\": \"\xff\"}]}",
       }) {
    CHECK(StatusOf(body) == 400);
  }
}

void TestLimits() {
  Limits limits;
  limits.samples = 3;
  limits.values = 10;
  CHECK(StatusOf(R"({"samples": [{}, {}, {}]})", limits) == 0);
  CHECK(StatusOf(R"({"samples": [{}, {}, {}, {}]})", limits) == 413);
  CHECK(StatusOf(R"({"lines": ["click:0 user:a", "click:0", "click:1", "click:0"]})", limits) == 413);
  CHECK(StatusOf(R"({"samples": [{"user": [1,2,3,4,5,6,7,8,9,10]}]})", limits) == 0);
  CHECK(StatusOf(R"({"samples": [{"user": [1,2,3,4,5,6,7,8,9,10,11]}]})", limits) == 413);
  std::string many = "{\"samples\": [{}]";
  for (int i = 0; i < 100'000; ++i) many += ",\"k" + std::to_string(i) + "\":1";
  CHECK(StatusOf(many + "}") == 413);
  std::string deep = "{\"samples\": " + std::string(100'000, '[');
  CHECK(StatusOf(deep) == 400);
  CHECK(StatusOf("{\"samples\": [{\"item\": " + std::string(1'000'000, '9') + "}]}") == 400);
  CHECK(StatusOf("{\"samples\": [{\"user\": \"" + std::string(5'000'000, 'a') + "\"}]}") == 0);
}

void TestAnswers() {
  Request request;
  request.id = "made";
  request.body = R"({"samples": [{}], "id": "a\"\u0001\u00e4"})";
  auto parsed = JsonCodec().Read(request, {});
  const std::string model = "ctr", variant = "live";
  const std::vector<std::string> one = {"click"}, two = {"click", "buy"};
  const float scores[] = {0.1f, 3.0e-8f, 1.0f, 0.33333334f};
  Coverage coverage;
  coverage.asked = 26;
  coverage.found = 25;
  auto body_of = [](const std::string& answer) {
    size_t at = answer.find("\r\n\r\n");
    CHECK(answer.starts_with("HTTP/1.1 200 OK\r\n") && at != std::string::npos);
    return json::parse(answer.substr(at + 4)).as_object();
  };
  json::object body =
      body_of(JsonCodec().Format(request, parsed.get(), {&model, 7, &variant, &one, 4, scores, &coverage}));
  CHECK(body["model"] == "ctr" && body["version"] == 7 && body["variant"] == "live" && body["id"] == "a\"\x01\xC3\xA4");
  CHECK(body["coverage"].as_object()["asked"] == 26 && body["coverage"].as_object()["degraded"] == false);
  CHECK(!body["coverage"].as_object().contains("reasons") && !body.contains("labels"));
  for (size_t i = 0; i < 4; ++i) {
    CHECK(static_cast<float>(body["scores"].as_array()[i].to_number<double>()) == scores[i]);
  }
  coverage.late = true;
  coverage.dead_shards = {1};
  body = body_of(JsonCodec().Format(request, nullptr, {&model, 7, &variant, &two, 2, scores, &coverage}));
  CHECK(body["id"] == "made" && body["labels"].as_array().size() == 2);
  CHECK(body["scores"].as_array()[1].as_array()[0].to_number<double>() == 1.0);
  CHECK(body["coverage"].as_object()["degraded"] == true &&
        body["coverage"].as_object()["reasons"].as_array()[0] == "shard 1 did not answer");
  std::string refused = JsonCodec().FormatError(request, nullptr, RetryLater("full", 1500));
  CHECK(refused.starts_with("HTTP/1.1 429 ") && refused.find("Retry-After: 2\r\n") != std::string::npos);
  refused = JsonCodec().FormatError(request, nullptr, Error(Code::kNotFound, "no \xff"));
  CHECK(refused.starts_with("HTTP/1.1 404 "));
  json::parse(refused.substr(refused.find("\r\n\r\n") + 4));
}

std::string Mutate(std::string text, std::mt19937_64* random) {
  static constexpr std::string_view kPieces[] = {"[",  "]",   "{",    "}",   ",", ":", "\"",
                                                 "\\", "\\u", "null", "1e9", "-", "\0"};
  for (uint64_t k = 1 + (*random)() % 4; k > 0 && !text.empty(); --k) {
    size_t at = (*random)() % text.size();
    switch ((*random)() % 4) {
      case 0: text[at] = static_cast<char>((*random)()); break;
      case 1: text.erase(at, 1 + (*random)() % 8); break;
      case 2: text.insert(at, kPieces[(*random)() % std::size(kPieces)]); break;
      default: text.insert(at, text.substr((*random)() % text.size(), (*random)() % 16)); break;
    }
  }
  return text;
}

void TestFuzz() {
  const std::string bodies[] = {
      R"({"samples": [{"user": "anna", "item": [1, "18446744073709551615"], "price": 3, "place": [0.5, -2e1]}], "id": "x"})",
      R"({"user": {"user": "u", "tags": ["t", "\u00e4"]}, "candidates": [{"item": 1}, {"tags": []}], "timeout_ms": 5})",
      R"({"lines": ["click:1 user:anna item:5", "click:0 user:bert"], "format": "slot", "ignore_unknown": true})",
  };
  std::mt19937_64 random(11);
  size_t taken = 0;
  for (int i = 0; i < 60'000; ++i) {
    std::string body = Mutate(bodies[i % 3], &random);
    if (StatusOf(body) != 0) continue;
    // JSON that we accept is also valid for others.
    ++taken;
    boost::system::error_code error;
    json::parse(body, error);
    CHECK(!error);
  }
  CHECK(taken > 500);
}

}  // namespace

int main() {
  TestMissingNumbers();
  TestSamples();
  TestCandidates();
  TestFeasigns();
  TestLines();
  TestFields();
  TestRefusals();
  TestLimits();
  TestAnswers();
  TestFuzz();
  return 0;
}
