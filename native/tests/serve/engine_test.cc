// The engine: every request is answered once, from one version, independent of the other requests.
#include "serve/engine/engine.h"

#include <set>

#include "tests/check.h"
#include "tests/serve/engine_fixture.h"
#include "tests/serve/toys.h"

using namespace elasticctr;
using namespace elasticctr::serve;

namespace {

// Versions change under load: every request is answered, and no answer mixes two.
void TestSwapsUnderLoad() {
  constexpr size_t kThreads = 4, kEach = 1500;
  const Behaviour behaviour;
  EngineOptions options = Small(3);
  options.queue_requests = kThreads * kEach;
  Engine engine(options);
  engine.SetModels(ToyModels({{"live", 1, false, ToyVersion(1, &behaviour), nullptr}}));
  std::atomic<size_t> seen{0};
  engine.OnFinished([&](const Finished& finished) { seen += finished.reply != nullptr; });
  Inbox inbox(kThreads * kEach);
  const auto values_of = [](size_t i) { return std::vector<uint64_t>{i % 1000, i % 7, i % 100 + 500}; };
  std::atomic<bool> is_over{false};
  std::thread swapper([&] {
    for (uint64_t version = 2; !is_over; ++version) {
      engine.SetModels(ToyModels({{"live", 1, false, ToyVersion(version, &behaviour), nullptr}}));
    }
  });
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = t * kEach; i < (t + 1) * kEach; ++i) engine.Submit(inbox.Make(i, ToyBody(values_of(i))));
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(inbox.WaitFor(kThreads * kEach));
  is_over = true;
  swapper.join();
  std::set<uint64_t> versions;
  for (size_t i = 0; i < kThreads * kEach; ++i) {
    const std::string answer = inbox.answer(i);
    const uint64_t version = std::stoull(answer);
    versions.insert(version);
    CHECK(answer == ToyAnswer(version, "live", values_of(i)));
  }
  engine.Stop(1);
  CHECK(versions.size() > 1 && seen == kThreads * kEach);
  CHECK(engine.stats().batch_requests == kThreads * kEach && engine.stats().batch_samples == 3 * kThreads * kEach);
}

// Queued requests are scored together, up to batch_samples, and a bad one among them fails alone.
void TestBatchesAndBadNeighbours() {
  Gate gate;
  std::vector<size_t> sizes;
  Behaviour behaviour;
  behaviour.on_run = [&](size_t n) {
    sizes.push_back(n);
    if (sizes.size() == 1) gate.Pass();
  };
  EngineOptions options = Small(1);
  options.batch_samples = 6;
  Engine engine(options);
  engine.SetModels(ToyModels({{"live", 1, false, ToyVersion(1, &behaviour), nullptr}}));
  Inbox inbox(12);
  engine.Submit(inbox.Make(0, ToyBody({1})));
  gate.WaitForSomebody();
  engine.Submit(inbox.Make(1, ToyBody({2, 3})));
  engine.Submit(inbox.Make(2, ToyBody({4, kBadData})));
  engine.Submit(inbox.Make(3, ToyBody({5, kBadMemory})));
  engine.Submit(inbox.Make(4, ToyBody({6, kBadSurprise})));
  engine.Submit(inbox.Make(5, "what?"));
  auto speechless = inbox.Make(6, "what?");
  speechless->id = "speechless";
  engine.Submit(std::move(speechless));
  engine.Submit(inbox.Make(7, ToyBody({kBadFormat})));
  engine.Submit(inbox.Make(8, "nobody;;;1"));
  engine.Submit(inbox.Make(9, ToyBody({})));
  engine.Submit(inbox.Make(10, ToyBody({7, 8, 9})));
  engine.Submit(inbox.Make(11, ToyBody({10})));
  CHECK(engine.queued() == 11);
  gate.Open();
  CHECK(inbox.WaitFor(12));
  engine.Stop(1);
  CHECK(inbox.answer(1) == ToyAnswer(1, "live", {2, 3}));
  CHECK(inbox.answer(2) == "error 11 bad value");
  CHECK(Starts(inbox.answer(3), "error 17 out of memory"));
  CHECK(inbox.answer(4) == "error 19 surprise");
  CHECK(inbox.answer(5) == "error 11 not four parts");
  CHECK(inbox.answer(6) == " closed");
  CHECK(Starts(inbox.answer(7), "error 17 out of memory"));
  CHECK(inbox.answer(8) == "error 12 no model 'nobody'; there is toy");
  CHECK(inbox.answer(9) == ToyAnswer(1, "live", {}));
  CHECK(inbox.answer(10) == ToyAnswer(1, "live", {7, 8, 9}));
  CHECK(inbox.answer(11) == ToyAnswer(1, "live", {10}));
  CHECK((sizes == std::vector<size_t>{1, 6, 1}));
  CHECK(engine.stats().refused_bad == 6);
}

// A failure that one request may have caused is traced by scoring them one by one; a common failure is reported to all.
void TestWhoIsToBlame() {
  Gate gate;
  bool is_first = true;
  Behaviour behaviour;
  Code code = Code::kInternal;
  behaviour.on_lookup = [&](const RowSource::Table& table, uint64_t) {
    if (std::exchange(is_first, false)) return gate.Pass();
    for (size_t i = 0; i < table.count; ++i) {
      if (table.feasigns[i] == 666) throw Error(code, "no 666");
    }
  };
  Engine engine(Small(1));
  engine.SetModels(ToyModels({{"live", 1, false, ToyVersion(1, &behaviour), nullptr}}));
  Inbox inbox(8);
  engine.Submit(inbox.Make(0, ToyBody({1})));
  gate.WaitForSomebody();
  engine.Submit(inbox.Make(1, ToyBody({2})));
  engine.Submit(inbox.Make(2, ToyBody({3, 666})));
  engine.Submit(inbox.Make(3, ToyBody({4})));
  gate.Open();
  CHECK(inbox.WaitFor(4));
  CHECK(inbox.answer(1) == ToyAnswer(1, "live", {2}) && inbox.answer(3) == ToyAnswer(1, "live", {4}));
  CHECK(inbox.answer(2) == "error 19 no 666");
  // Only the faulty request is refused for non-finite scores.
  code = Code::kUnavailable;
  engine.Submit(inbox.Make(4, ToyBody({666})));
  CHECK(inbox.WaitFor(5));
  CHECK(inbox.answer(4) == "error 17 no 666");
}

void TestScoresThatAreNoNumbers() {
  class Nan final : public DenseGraph {
    void Run(std::span<const Input>, size_t n, size_t, float* out) const override {
      for (size_t i = 0; i < n; ++i) out[i] = i == 1 ? __builtin_nanf("") : 0.5f;
    }
  };
  const Behaviour behaviour;
  Engine engine(Small(1));
  auto version = std::make_shared<ServedVersion>("toy", 1, ToyPlan(), std::make_shared<ToyRows>(1, &behaviour),
                                                 std::make_unique<Nan>(), Policy());
  engine.SetModels(ToyModels({{"live", 1, false, version, nullptr}}));
  Inbox inbox(1);
  engine.Submit(inbox.Make(0, ToyBody({1, 2})));
  CHECK(inbox.WaitFor(1) && Starts(inbox.answer(0), "error 11 sample 1: "));
}

void TestDeadlines() {
  Gate gate;
  bool is_first = true;
  Behaviour behaviour;
  behaviour.on_run = [&](size_t) {
    if (std::exchange(is_first, false)) gate.Pass();
  };
  Engine engine(Small(1));
  engine.SetModels(ToyModels({{"live", 1, false, ToyVersion(1, &behaviour), nullptr}}));
  Inbox inbox(4);
  engine.Submit(inbox.Make(0, ToyBody({1})));
  gate.WaitForSomebody();
  auto late = inbox.Make(1, ToyBody({2}));
  late->deadline_ns = net::NowNs() + 200'000'000;
  engine.Submit(std::move(late));
  engine.Submit(inbox.Make(2, ToyBody({3}, "", 1)));
  engine.Submit(inbox.Make(3, ToyBody({4})));
  std::this_thread::sleep_for(std::chrono::milliseconds(250));
  // A request that cannot wait as long as the others have waited is not even accepted.
  Inbox second(1);
  auto hopeless = second.Make(0, ToyBody({5}));
  hopeless->deadline_ns = net::NowNs() + 20'000'000;
  engine.Submit(std::move(hopeless));
  CHECK(second.WaitFor(1) && Starts(second.answer(0), "error 17 retry "));
  gate.Open();
  CHECK(inbox.WaitFor(4));
  CHECK(Starts(inbox.answer(1), "error 18 ") && Starts(inbox.answer(2), "error 18 "));
  CHECK(inbox.answer(3) == ToyAnswer(1, "live", {4}));
  CHECK(engine.stats().refused_late == 2 && engine.stats().refused_full == 1);
}

void TestRefusals() {
  Gate gate;
  Behaviour behaviour;
  behaviour.on_run = [&](size_t) { gate.Pass(); };
  EngineOptions options = Small(1);
  options.queue_requests = 3;
  options.queue_ms = 50;
  Engine engine(options);
  engine.SetModels(ToyModels({{"live", 1, false, ToyVersion(1, &behaviour), nullptr}}));
  Inbox inbox(6);
  engine.Submit(inbox.Make(0, ToyBody({1})));
  gate.WaitForSomebody();
  for (size_t i = 1; i < 5; ++i) engine.Submit(inbox.Make(i, ToyBody({1})));
  CHECK(inbox.WaitFor(1) && Starts(inbox.answer(4), "error 17 retry too many"));
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  gate.Open();
  CHECK(inbox.WaitFor(5));
  CHECK(engine.stats().refused_full == 1);

  Gate second;
  behaviour.on_run = [&](size_t) { second.Pass(); };
  Inbox slow(3);
  engine.Submit(slow.Make(0, ToyBody({1})));
  second.WaitForSomebody();
  engine.Submit(slow.Make(1, ToyBody({1})));
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  engine.Submit(slow.Make(2, ToyBody({1})));
  CHECK(slow.WaitFor(1) && Starts(slow.answer(2), "error 17 retry requests are waiting too long"));
  second.Open();
  CHECK(slow.WaitFor(3));
}

// Remote lookups end before the first of the requests that share them times out, and requests with much time left are
// not combined with requests that have little.
void TestRemoteDeadlines() {
  Gate gate;
  std::vector<std::pair<size_t, uint64_t>> lookups;
  Behaviour behaviour;
  behaviour.is_remote = true;
  behaviour.on_lookup = [&](const RowSource::Table& table, uint64_t deadline_ns) {
    lookups.push_back({table.count, deadline_ns > net::NowNs() ? deadline_ns - net::NowNs() : 0});
    if (lookups.size() == 1) gate.Pass();
  };
  Engine engine(Small(1));
  engine.SetModels(ToyModels({{"live", 1, false, ToyVersion(1, &behaviour), nullptr}}));
  Inbox inbox(5);
  engine.Submit(inbox.Make(0, ToyBody({1})));
  gate.WaitForSomebody();
  const uint64_t now = net::NowNs();
  for (size_t i = 1; i < 5; ++i) {
    auto request = inbox.Make(i, ToyBody({i, i}));
    request->deadline_ns = now + (i < 3 ? 50'000'000'000 : 5'000'000'000);
    engine.Submit(std::move(request));
  }
  gate.Open();
  CHECK(inbox.WaitFor(5));
  engine.Stop(1);
  CHECK(lookups.size() == 3 && lookups[1].first == 4 && lookups[2].first == 4);
  CHECK(lookups[1].second > 20'000'000'000 && lookups[1].second < 50'000'000'000);
  CHECK(lookups[2].second > 2'000'000'000 && lookups[2].second < 5'000'000'000);
}

void TestDrain() {
  Behaviour behaviour;
  behaviour.on_run = [](size_t) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
  EngineOptions options = Small(2);
  options.batch_samples = 1;
  Inbox inbox(101);
  {
    Engine engine(options);
    engine.SetModels(ToyModels({{"live", 1, false, ToyVersion(1, &behaviour), nullptr}}));
    for (size_t i = 0; i < 100; ++i) engine.Submit(inbox.Make(i, ToyBody({i})));
    engine.Stop(30);
    engine.Submit(inbox.Make(100, ToyBody({1})));
  }
  CHECK(inbox.WaitFor(101));
  for (size_t i = 0; i < 100; ++i) CHECK(inbox.answer(i) == ToyAnswer(1, "live", {i}));
  CHECK(inbox.answer(100) == "error 17 retry the server is stopping");

  // Without time to drain, waiting requests are refused; still every one is answered.
  Inbox cut(100);
  size_t refused = 0;
  {
    Engine engine(options);
    engine.SetModels(ToyModels({{"live", 1, false, ToyVersion(1, &behaviour), nullptr}}));
    for (size_t i = 0; i < 100; ++i) engine.Submit(cut.Make(i, ToyBody({i})));
  }
  CHECK(cut.WaitFor(100));
  for (size_t i = 0; i < 100; ++i) refused += Starts(cut.answer(i), "error 17 retry the server is stopping");
  CHECK(refused > 0 && refused < 100);
}

// PROMISE: a server without a version gets a request | it answers that it is not ready, never that the model does not
// exist
void TestWithoutModels() {
  Engine engine(Small(1));
  Inbox inbox(2);
  engine.Submit(inbox.Make(0, ToyBody({1})));
  CHECK(inbox.WaitFor(1) && Starts(inbox.answer(0), "error 17") && Has(inbox.answer(0), "no model is served yet"));
  engine.SetModels(ToyModels({}));
  engine.Submit(inbox.Make(1, ToyBody({1})));
  CHECK(inbox.WaitFor(2) && Starts(inbox.answer(1), "error 17") && Has(inbox.answer(1), "has no version yet"));
  try {
    ToyModels({{"live", -1, false, nullptr, nullptr}});
    CHECK(false);
  } catch (const Error& e) {
    CHECK(e.code() == Code::kConfig);
  }
}

// batch_wait_us combines the requests that arrive meanwhile into one batch.
void TestBatchWait() {
  std::atomic<size_t> runs{0};
  Behaviour behaviour;
  behaviour.on_run = [&](size_t) { ++runs; };
  EngineOptions options = Small(1);
  options.batch_wait_us = 300'000;
  options.batch_samples = 10;
  Engine engine(options);
  engine.SetModels(ToyModels({{"live", 1, false, ToyVersion(1, &behaviour), nullptr}}));
  Inbox inbox(10);
  for (size_t i = 0; i < 10; ++i) {
    engine.Submit(inbox.Make(i, ToyBody({i})));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(inbox.WaitFor(10) && runs == 1);
}

}  // namespace

int main() {
  TestSwapsUnderLoad();
  TestBatchesAndBadNeighbours();
  TestWhoIsToBlame();
  TestScoresThatAreNoNumbers();
  TestDeadlines();
  TestRefusals();
  TestRemoteDeadlines();
  TestDrain();
  TestWithoutModels();
  TestBatchWait();
}
