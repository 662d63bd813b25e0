// The request log: lines as documented, files complete or with whole lines, disk and memory bounded, concurrent
// threads.
#include "serve/request_log/request_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "serve/request_log/observer.h"
#include "tests/check.h"
#include "util/status.h"

namespace fs = std::filesystem;
using namespace elasticctr;
using namespace elasticctr::serve;

namespace {

struct Place {
  Place() : path(fs::temp_directory_path() / ("request_log_test-" + std::to_string(getpid()))) { fs::remove_all(path); }
  ~Place() { fs::remove_all(path); }
  fs::path path;
};

std::vector<std::string> Files(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string Read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

LoggedRequest Make(const std::string& id, size_t samples, std::string body = "{}") {
  static const auto slots =
      std::make_shared<const LoggedSlots>(LoggedSlots{{"user", "item"}, {{"price", 1}, {"place", 2}}});
  LoggedRequest r;
  r.time = 1794747816.7123459;
  r.id = id;
  r.model = "ctr";
  r.version = 7;
  r.variant = "live";
  r.protocol = "json";
  r.body_bytes = body.size();
  r.body = std::move(body);
  r.slots = slots;
  r.row_bags = {1};
  r.bags = {{0, 2}};
  r.values = {18446744073709551615ull, 5};
  for (size_t i = 0; i < samples; ++i) {
    r.row_bags.push_back(1);
    r.bags.push_back({1, 1});
    r.values.push_back(100 + i);
    r.dense.insert(r.dense.end(), {0.1f, 2.0f, 3.5f});
    r.scores.push_back(0.25f);
  }
  r.asked = 3;
  r.found = 2;
  return r;
}

void LineHoldsWhatWasAsked() {
  LoggedRequest r = Make("a\"\n\x01", 2, "{\"q\": \"\xC3\xBC\"}");
  r.dead_shards = {1, 3};
  r.is_degraded = true;
  std::string line;
  AppendLine(r, &line);
  CHECK(line.back() == '\n' && std::count(line.begin(), line.end(), '\n') == 1);
  const auto parsed = boost::json::parse(line).as_object();
  CHECK(parsed.at("id").as_string() == "a\"\n\x01");
  CHECK(parsed.at("time").as_double() == 1794747816.712346);
  CHECK(parsed.at("request").as_string() == "{\"q\": \"\xC3\xBC\"}");
  CHECK(parsed.at("shared").at("user").at(0).as_uint64() == 18446744073709551615ull);
  CHECK(parsed.at("samples").at(1).at("slots").at("item").at(0).as_int64() == 101);
  CHECK(static_cast<float>(parsed.at("samples").at(0).at("dense").at("price").at(0).as_double()) == 0.1f);
  CHECK(parsed.at("samples").at(1).at("dense").at("place").at(1).as_double() == 3.5);
  CHECK(parsed.at("samples").at(0).at("scores").at(0).as_double() == 0.25);
  CHECK(parsed.at("coverage").at("dead_shards").as_array().size() == 2);
  CHECK(parsed.at("coverage").at("degraded").as_bool());
}

void BytesThatAreNotText() {
  CHECK(Base64("") == "" && Base64("f") == "Zg==" && Base64("fo") == "Zm8=" && Base64("foobar") == "Zm9vYmFy");
  CHECK(IsUtf8("plain \xE2\x82\xAC \xF0\x9F\x98\x80") && IsUtf8(std::string_view("\0", 1)));
  for (const char* bad : {"\xFF", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82", "\x80", "\xE0\x80\x80"}) {
    CHECK(!IsUtf8(bad));
  }
  std::string line;
  AppendLine(Make("id", 1, "\xFF\xFE"), &line);
  CHECK(boost::json::parse(line).at("request_base64").as_string() == "//4=");
  LoggedRequest large = Make("id", 1);
  large.body_bytes = 1 << 20;
  large.body.clear();
  line.clear();
  AppendLine(large, &line);
  CHECK(!boost::json::parse(line).as_object().contains("request"));
}

void FilesAreCompleteAndBounded() {
  Place place;
  RequestLogOptions options{.directory = place.path.string(), .max_bytes = 64 << 10, .file_bytes = 8 << 10};
  uint64_t removed;
  {
    RequestLog log(options);
    for (int i = 0; i < 2000; ++i) {
      CHECK(log.Add(Make("r" + std::to_string(i), 3)));
      if (i % 10 == 9) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    log.Stop();
    CHECK(!log.Add(Make("after", 1)));
    CHECK(log.stats().written == 2000 && log.stats().dropped == 1 && log.stats().failed == 0);
    removed = log.stats().removed;
  }
  CHECK(removed > 0);
  uint64_t total = 0;
  std::string last;
  for (const std::string& name : Files(place.path)) {
    CHECK(name.ends_with(".jsonl"));
    last = Read(place.path / name);
    total += last.size();
    CHECK(last.back() == '\n');
  }
  CHECK(total <= options.max_bytes);
  CHECK(last.find("\"r1999\"") != std::string::npos);  // the oldest were dropped, not the newest
}

void KilledServersLeaveWholeLines() {
  Place place;
  fs::create_directories(place.path);
  const fs::path left = place.path / "requests-20260101T000000.000000Z-1.jsonl.open";
  const fs::path empty = place.path / "requests-20260101T000001.000000Z-1.jsonl.open";
  const fs::path live = place.path / "requests-20260101T000002.000000Z-1.jsonl.open";
  std::ofstream(left) << "{\"a\":1}\n{\"b\":2}\n{\"torn";
  std::ofstream(empty) << "{\"torn";
  std::ofstream(live) << "{\"c\":3}\n{\"d\"";
  const int held = open(live.c_str(), O_RDONLY);
  CHECK(flock(held, LOCK_EX | LOCK_NB) == 0);
  {
    RequestLog log({.directory = place.path.string()});
  }
  close(held);
  const auto names = Files(place.path);
  CHECK(names.size() == 2);
  CHECK(names[0] == "requests-20260101T000000.000000Z-1.jsonl");
  CHECK(Read(place.path / names[0]) == "{\"a\":1}\n{\"b\":2}\n");
  CHECK(names[1] == live.filename().string() && Read(live) == "{\"c\":3}\n{\"d\"");  // another process still writes it
}

void FullQueueDropsAndCounts() {
  Place place;
  RequestLog log({.directory = place.path.string(), .queue_bytes = 20'000});
  uint64_t taken = 0;
  for (int i = 0; i < 5000; ++i) taken += log.Add(Make("x", 20));
  log.Stop();
  CHECK(taken < 5000 && log.stats().dropped == 5000 - taken && log.stats().written == taken);
  CHECK(log.Metrics().find("serve_request_log_dropped_total " + std::to_string(5000 - taken)) != std::string::npos);
}

void ManyThreadsAtOnce() {
  Place place;
  RequestLog log({.directory = place.path.string(), .file_bytes = 64 << 10});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&log, t] {
      for (int i = 0; i < 500; ++i) {
        auto names = log.SlotNames("ctr", static_cast<uint64_t>(i % 40), [] { return LoggedSlots{{"s"}, {}}; });
        CHECK(names->sparse.size() == 1);
        CHECK(log.Add(Make(std::to_string(t) + "-" + std::to_string(i), 2)));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  log.Stop();
  size_t lines = 0;
  for (const std::string& name : Files(place.path)) {
    std::istringstream in(Read(place.path / name));
    for (std::string line; std::getline(in, line); ++lines) CHECK(boost::json::parse(line).is_object());
  }
  CHECK(lines == 2000);
}

void SampleIsByIdAndBadOptionsAreRefused() {
  Place place;
  RequestLog tenth({.directory = place.path.string(), .sample = 0.1});
  RequestLog half({.directory = place.path.string(), .sample = 0.5});
  int count = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string id = "id-" + std::to_string(i);
    count += tenth.Takes(id);
    CHECK(!tenth.Takes(id) || half.Takes(id));
  }
  CHECK(count > 1800 && count < 2200);
  std::ofstream(place.path / "file") << "x";
  for (const RequestLogOptions& bad :
       {RequestLogOptions{.directory = (place.path / "file").string()}, RequestLogOptions{.directory = ""},
        RequestLogOptions{.directory = place.path.string(), .sample = 1.5}}) {
    try {
      RequestLog log(bad);
      CHECK(false);
    } catch (const Error& e) {
      CHECK(e.code() == Code::kConfig);
    }
  }
}

class NoCodec : public Codec {
 public:
  const char* name() const override { return "json"; }
  std::unique_ptr<Parsed> Read(const Request&, const Limits&) const override { return nullptr; }
  std::string Format(const Request&, const Parsed*, const Reply&) const override { return ""; }
  std::string FormatError(const Request&, const Parsed*, const Error&) const override { return ""; }
};

Plan MakePlan() {
  Plan plan;
  for (const char* name : {"user", "item", "tags"}) plan.spec.sparse.push_back({.name = name});
  plan.spec.dense.push_back({"x", 2, Transform::kNone, {}, {}});
  plan.spec.labels = plan.labels = {"click"};
  plan.sparse.resize(3);
  for (uint32_t i = 0; i < 3; ++i) plan.sparse[i].pieces = {{0, 1, i}};
  plan.dense_columns = {0};
  plan.tables = {{"main", 1}};
  plan.pooled_width = 3;
  plan.dense_width = 2;
  plan.Seal();
  return plan;
}

// Two requests in one micro-batch; the second shares `user` and `tags`, and one of its samples replaces each.
void EngineHandsOverWhatItScored() {
  Place place;
  const Plan plan = MakePlan();
  Samples samples;
  samples.Reset(&plan);
  samples.BeginRequest();
  samples.BeginSample();
  samples.AddFeasign(0, 77);
  samples.EndRequest();
  samples.BeginRequest();
  samples.AddFeasign(0, 1);
  samples.AddFeasign(2, 8);
  samples.AddFeasign(2, 9);
  for (uint32_t i = 0; i < 3; ++i) {
    samples.BeginSample();
    samples.AddFeasign(1, 10 + i);
    samples.SetDense(0, 0, 0.5f);
    samples.SetDense(0, 1, static_cast<float>(i));
    if (i == 1) samples.AddFeasign(0, 2);
    if (i == 2) samples.GiveSlot(2);
  }
  samples.EndRequest();

  const NoCodec codec;
  const std::string model = "ctr", variant = "b";
  const std::vector<std::string> labels = {"click"};
  const float scores[] = {0.25f, 0.5f, 0.75f};
  Coverage coverage;
  coverage.asked = 7;
  coverage.found = 6;
  coverage.late = true;
  Request request;
  request.codec = &codec;
  request.id = "abc";
  request.body = std::string(300, 'x');
  const Reply reply{&model, 9, &variant, &labels, 3, scores, &coverage};
  const Error error(Code::kData, "bad");
  {
    RequestLog log({.directory = place.path.string(), .body_bytes = 299});
    LogFinished({&request, nullptr, &reply, nullptr, &samples, 1, 0, 2'000'000'000}, &log);
    LogFinished({&request, nullptr, nullptr, &error, &samples, 1, 0, 0}, &log);
    LogFinished({&request, nullptr, nullptr, &error, nullptr, 0, 0, 0}, &log);
  }
  const auto names = Files(place.path);
  CHECK(names.size() == 1);
  const auto line = boost::json::parse(Read(place.path / names[0])).as_object();
  const auto now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  CHECK(std::abs(line.at("time").as_double() - (now - 2)) < 1);
  CHECK(line.at("id").as_string() == "abc" && line.at("variant").as_string() == "b");
  CHECK(line.at("version").as_int64() == 9 && line.at("request_bytes").as_int64() == 300);
  CHECK(!line.contains("request"));
  CHECK(boost::json::serialize(line.at("shared")) == R"({"user":[1],"tags":[8,9]})");
  CHECK(boost::json::serialize(line.at("samples").at(0).at("slots")) == R"({"item":[10]})");
  CHECK(boost::json::serialize(line.at("samples").at(1).at("slots")) == R"({"user":[2],"item":[11]})");
  CHECK(boost::json::serialize(line.at("samples").at(2).at("slots")) == R"({"item":[12],"tags":[]})");
  const boost::json::array& dense = line.at("samples").at(2).at("dense").at("x").as_array();
  CHECK(dense.size() == 2 && dense[0].to_number<float>() == 0.5f && dense[1].to_number<float>() == 2.0f);
  CHECK(line.at("samples").at(2).at("scores").at(0).as_double() == 0.75);
  CHECK(line.at("coverage").at("late").as_bool() && line.at("coverage").at("degraded").as_bool());
}

}  // namespace

int main() {
  LineHoldsWhatWasAsked();
  BytesThatAreNotText();
  FilesAreCompleteAndBounded();
  KilledServersLeaveWholeLines();
  FullQueueDropsAndCounts();
  ManyThreadsAtOnce();
  SampleIsByIdAndBadOptionsAreRefused();
  EngineHandsOverWhatItScored();
}
