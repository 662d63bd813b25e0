// The engine: variants, shadows, and rows that are missing.
#include "serve/engine/engine.h"
#include "tests/check.h"
#include "tests/serve/engine_fixture.h"
#include "tests/serve/toys.h"

using namespace elasticctr;
using namespace elasticctr::serve;

namespace {

void TestVariants() {
  const Behaviour behaviour;
  EngineOptions options = Small(2);
  Engine engine(options);
  const std::vector<Variant> variants = {{"live", 0.7, false, ToyVersion(1, &behaviour), nullptr},
                                         {"b", 0.3, false, ToyVersion(2, &behaviour), nullptr},
                                         {"off", 0, false, ToyVersion(3, &behaviour), nullptr}};
  engine.SetModels(ToyModels(variants, "field"));
  constexpr size_t kCount = 3000;
  Inbox inbox(2 * kCount);
  for (size_t i = 0; i < kCount; ++i) engine.Submit(inbox.Make(i, ToyBody({1}, "user" + std::to_string(i / 3))));
  CHECK(inbox.WaitFor(kCount));
  size_t to_b = 0;
  for (size_t i = 0; i < kCount; i += 3) {
    CHECK(inbox.answer(i) == inbox.answer(i + 1) && inbox.answer(i) == inbox.answer(i + 2));
    to_b += Has(inbox.answer(i), " b ");
  }
  CHECK(to_b > 230 && to_b < 370);
  to_b = 0;
  for (size_t i = 0; i < kCount; ++i) engine.Submit(inbox.Make(kCount + i, ToyBody({1})));
  CHECK(inbox.WaitFor(2 * kCount));
  for (size_t i = 0; i < kCount; ++i) to_b += Has(inbox.answer(kCount + i), " b ");
  CHECK(to_b > 700 && to_b < 1100);
  const auto models = engine.models();
  CHECK(models->all()[0].variants[0].stats->requests + models->all()[0].variants[1].stats->requests == 2 * kCount);
  CHECK(models->all()[0].variants[2].stats->requests == 0);

  // A version named in the path answers, whatever its weight.
  Inbox named(3);
  const char* versions[] = {"3", "2", "9"};
  for (size_t i = 0; i < 3; ++i) {
    auto request = named.Make(i, ToyBody({7}));
    request->version = versions[i];
    engine.Submit(std::move(request));
  }
  CHECK(named.WaitFor(3));
  CHECK(named.answer(0) == ToyAnswer(3, "off", {7}) && named.answer(1) == ToyAnswer(2, "b", {7}));
  CHECK(named.answer(2) == "error 12 model 'toy' does not serve version 9");
}

void TestShadows() {
  Behaviour behaviour;
  Behaviour strict = behaviour;
  strict.policy.fails_on_missing = true;
  strict.policy.min_coverage = 0.5;
  EngineOptions options = Small(2);
  Engine engine(options);
  std::atomic<size_t> told{0}, told_of_shadows{0};
  engine.OnFinished([&](const Finished&) { ++told; });
  engine.OnFinished([&](const Finished& finished) { told_of_shadows += finished.request->is_shadow; }, true);
  auto live = std::make_shared<VariantStats>(), shadow = std::make_shared<VariantStats>();
  auto failing = std::make_shared<VariantStats>();
  engine.SetModels(ToyModels({{"live", 1, false, ToyVersion(1, &behaviour), live},
                              {"dark", 1, true, ToyVersion(2, &behaviour), shadow},
                              {"darker", 1, true, ToyVersion(3, &strict), failing}}));
  constexpr size_t kCount = 200;
  Inbox inbox(kCount);
  for (size_t i = 0; i < kCount; ++i) engine.Submit(inbox.Make(i, ToyBody({2'000'000 + i})));
  CHECK(inbox.WaitFor(kCount));
  for (int wait = 0; wait < 2000 && told_of_shadows < 2 * kCount; ++wait) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  engine.Stop(5);
  for (size_t i = 0; i < kCount; ++i) CHECK(Starts(inbox.answer(i), "1 live 1 0 1:"));
  CHECK(live->requests == kCount && shadow->requests == kCount && told == kCount && told_of_shadows == 2 * kCount);
  CHECK(failing->requests == 0 && failing->errors[static_cast<size_t>(Code::kUnavailable)] == kCount);
  CHECK(engine.stats().shadow_dropped == 0);
}

void TestShadowsGiveWay() {
  Gate gate;
  bool is_first = true;
  Behaviour behaviour;
  behaviour.on_run = [&](size_t) {
    if (std::exchange(is_first, false)) gate.Pass();
  };
  EngineOptions options = Small(1);
  options.queue_requests = 8;
  options.batch_samples = 1;
  Engine engine(options);
  engine.SetModels(ToyModels(
      {{"live", 1, false, ToyVersion(1, &behaviour), nullptr}, {"dark", 1, true, ToyVersion(2, &behaviour), nullptr}}));
  Inbox inbox(9);
  engine.Submit(inbox.Make(0, ToyBody({1})));
  gate.WaitForSomebody();
  for (size_t i = 1; i < 9; ++i) engine.Submit(inbox.Make(i, ToyBody({1})));
  gate.Open();
  CHECK(inbox.WaitFor(9));
  engine.Stop(5);
  for (size_t i = 0; i < 9; ++i) CHECK(inbox.answer(i) == ToyAnswer(1, "live", {1}));
  CHECK(engine.stats().shadow_dropped >= 4);
}

void TestMissingRows() {
  Behaviour degrade, fail;
  degrade.policy.min_coverage = fail.policy.min_coverage = 0.6;
  fail.policy.fails_on_missing = true;
  Engine engine(Small(1));
  engine.SetModels(
      ToyModels({{"a", 1, false, ToyVersion(1, &degrade), nullptr}, {"b", 1, false, ToyVersion(2, &fail), nullptr}}));
  Inbox inbox(4);
  for (size_t i = 0; i < 4; ++i) {
    auto request = inbox.Make(i, ToyBody(i < 2 ? std::vector<uint64_t>{1, 2'000'000} : std::vector<uint64_t>{1, 2}));
    request->version = i % 2 == 0 ? "1" : "2";
    engine.Submit(std::move(request));
  }
  CHECK(inbox.WaitFor(4));
  CHECK(Starts(inbox.answer(0), "1 a 1 1 2:") && Starts(inbox.answer(1), "error 17 found 1 of 2 rows"));
  CHECK(inbox.answer(2) == ToyAnswer(1, "a", {1, 2}) && inbox.answer(3) == ToyAnswer(2, "b", {1, 2}));
}

// PROMISE: not one row of a request is found, under the default policy | the answer is marked degraded, and counted
void TestNoRowAtAll() {
  Behaviour by_default, strict;
  strict.policy.fails_on_missing = true;  // without effect while min_coverage is 0
  const auto stats = std::make_shared<VariantStats>();
  Engine engine(Small(1));
  engine.SetModels(ToyModels(
      {{"a", 1, false, ToyVersion(1, &by_default), stats}, {"b", 1, false, ToyVersion(2, &strict), nullptr}}));
  Inbox inbox(4);
  const std::vector<uint64_t> bodies[] = {{2'000'000, 3'000'000}, {1, 2'000'000}, {}, {2'000'000}};
  for (size_t i = 0; i < 4; ++i) {
    auto request = inbox.Make(i, ToyBody(bodies[i]));
    request->version = i < 3 ? "1" : "2";
    engine.Submit(std::move(request));
  }
  CHECK(inbox.WaitFor(4));
  CHECK(Starts(inbox.answer(0), "1 a 1 0 2:") && Starts(inbox.answer(1), "1 a 0 1 2:"));
  CHECK(Starts(inbox.answer(2), "1 a 0 0 0:") && Starts(inbox.answer(3), "2 b 1 0 1:"));
  CHECK(stats->degraded == 1);
}

}  // namespace

int main() {
  TestVariants();
  TestShadows();
  TestShadowsGiveWay();
  TestMissingRows();
  TestNoRowAtAll();
}
