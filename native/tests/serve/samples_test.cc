// Samples filled by codecs equal those that the trainer's parser reads from the same log.
#include "serve/codec/samples.h"

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "sample/parser.h"
#include "tests/check.h"
#include "util/hash.h"
#include "util/status.h"

using namespace elasticctr;
using namespace elasticctr::serve;

namespace {

Plan MakePlan() {
  Plan plan;
  plan.spec.format = TextFormat::kSlot;
  plan.spec.labels = {"label"};
  plan.spec.hash_seed = 17;
  plan.spec.sparse = {{"id", false, false, 3}, {"text", true, false, 1024}, {"history", false, true, 4}};
  plan.spec.dense = {{"age", 1, Transform::kLog1p, {}, {}},
                     {"pair", 2, Transform::kScale, {1, 2}, {4, 5}},
                     {"plain", 1, Transform::kNone, {}, {}}};
  plan.tables = {{"main", 4}};
  plan.sparse.resize(3);
  plan.sparse[0].pieces = {{0, 4, 0}};
  plan.sparse[1].pieces = {{0, 4, 4}};
  plan.sparse[2] = {0, Pooling::kNone, {}, 0, 4, 4, "seq", "len", {}};
  plan.dense_columns = {0, 1, 3};
  plan.labels = {"label"};
  plan.pooled_width = 8;
  plan.dense_width = 4;
  plan.Seal();
  return plan;
}

std::vector<uint64_t> ValuesOf(const Samples& samples, size_t sample, uint32_t slot) {
  const Samples::Bag bag = samples.bags(sample)[slot];
  return {samples.values(slot) + bag.first, samples.values(slot) + bag.first + bag.count};
}

template <typename F>
std::string ErrorOf(Code code, F&& f) {
  try {
    f();
  } catch (const Error& e) {
    CHECK(e.code() == code);
    return e.what();
  }
  CHECK(!"no error");
  return "";
}

struct Drawn {
  std::vector<std::vector<std::string>> values;  // per slot
  std::vector<double> dense;                     // four, or none
};

Drawn Draw(std::mt19937_64& random) {
  Drawn drawn;
  drawn.values.resize(3);
  for (size_t slot = 0; slot < 3; ++slot) {
    for (uint64_t i = random() % 7; i > 0; --i) {
      drawn.values[slot].push_back(slot == 1 && random() % 2 ? "t" + std::to_string(random())
                                                             : std::to_string(random()));
    }
  }
  for (int i = 0; i < 4; ++i) drawn.dense.push_back(static_cast<double>(random() % 10'000'000) / 1000 - 1000);
  return drawn;
}

std::string LineOf(const Plan& plan, const Drawn& drawn) {
  std::string line = "other:5";
  for (size_t slot = 0; slot < 3; ++slot) {
    for (const std::string& value : drawn.values[slot]) line += " " + plan.spec.sparse[slot].name + ":" + value;
  }
  const char* names[] = {"age", "pair", "pair", "plain"};
  for (size_t i = 0; i < drawn.dense.size(); ++i) {
    line += std::string(" ") + names[i] + ":" + std::to_string(drawn.dense[i]);
  }
  return line + "\n";
}

void FillFrom(Samples* samples, const Drawn& drawn) {
  samples->BeginSample();
  for (uint32_t slot = 0; slot < 3; ++slot) {
    for (const std::string& value : drawn.values[slot]) {
      if (value[0] != 't' && value.size() % 2 == 0) {
        samples->AddNumber(slot, std::stoull(value));
      } else {
        samples->AddText(slot, value);
      }
    }
  }
  const uint32_t places[][2] = {{0, 0}, {1, 0}, {1, 1}, {2, 0}};
  for (size_t i = 0; i < drawn.dense.size(); ++i) {
    samples->SetRawDense(places[i][0], places[i][1], std::stod(std::to_string(drawn.dense[i])));
  }
}

void TestSameAsParser() {
  const Plan plan = MakePlan();
  std::mt19937_64 random(5);
  std::string text;
  std::vector<Drawn> all;
  for (int i = 0; i < 500; ++i) {
    all.push_back(Draw(random));
    text += LineOf(plan, all.back());
  }
  const auto block = Parser(plan.spec, Split(0, 1, 0), 1).Parse(text, 1);
  CHECK(block->n == 500 && block->bad_count == 0);
  Samples by_value, by_line;
  for (int round = 0; round < 3; ++round) {
    by_value.Reset(&plan);
    by_line.Reset(&plan);
    by_value.BeginRequest();
    for (const Drawn& drawn : all) FillFrom(&by_value, drawn);
    by_value.EndRequest();
    by_line.BeginRequest();
    by_line.AddLines(TextFormat::kSlot, text);
    by_line.EndRequest();
    for (const Samples* samples : {&by_value, &by_line}) {
      CHECK(samples->size() == 500 && samples->requests() == 1 && samples->request(0).count == 500);
      for (size_t i = 0; i < 500; ++i) {
        for (uint32_t slot = 0; slot < 3; ++slot) {
          const int32_t* offsets = block->offsets + slot * block->n + i;
          CHECK(ValuesOf(*samples, i, slot) ==
                std::vector<uint64_t>(block->values + offsets[0], block->values + offsets[1]));
        }
        for (size_t k = 0; k < 4; ++k) CHECK(samples->dense(i)[k] == block->dense[i * 4 + k]);
      }
    }
  }
}

void TestShared() {
  const Plan plan = MakePlan();
  Samples samples;
  samples.Reset(&plan);
  samples.BeginRequest();
  samples.AddFeasign(0, 1);
  samples.AddFeasign(0, 2);
  samples.SetDense(2, 0, 9);
  samples.BeginSample();
  samples.AddFeasign(2, 5);
  samples.BeginSample();
  samples.AddFeasign(0, 7);
  samples.SetDense(2, 0, 3);
  samples.BeginSample();
  samples.GiveSlot(0);
  samples.BeginSample();
  CHECK(samples.request_values() == 4);
  samples.EndRequest();
  CHECK(samples.size() == 4 && samples.value_count(0) == 3);
  using Values = std::vector<uint64_t>;
  CHECK((ValuesOf(samples, 0, 0) == Values{1, 2} && ValuesOf(samples, 0, 2) == Values{5}));
  CHECK((ValuesOf(samples, 1, 0) == Values{7} && ValuesOf(samples, 1, 2).empty()));
  CHECK((ValuesOf(samples, 2, 0).empty() && ValuesOf(samples, 3, 0) == Values{1, 2}));
  CHECK(samples.bags(0)[0].first == samples.bags(3)[0].first);
  CHECK(samples.shared(0, 0).size() == 2 && samples.shared(0, 0)[1] == 2 && samples.shared(0, 2).empty());
  CHECK(samples.own(0, 0, 0).empty() && samples.own(0, 0, 2)[0] == 5 && samples.own(0, 1, 0)[0] == 7);
  CHECK(samples.dense(0)[3] == 9 && samples.dense(1)[3] == 3 && samples.dense(2)[3] == 9);

  // The next request shares nothing with it; a dropped one leaves no trace.
  samples.BeginRequest();
  samples.AddFeasign(0, 40);
  samples.BeginSample();
  samples.AddFeasign(1, 41);
  samples.DropRequest();
  samples.BeginRequest();
  samples.BeginSample();
  samples.AddFeasign(2, 42);
  samples.EndRequest();
  CHECK(samples.size() == 5 && samples.requests() == 2 && samples.request(1).first == 4);
  CHECK((ValuesOf(samples, 4, 0).empty() && ValuesOf(samples, 4, 1).empty() && ValuesOf(samples, 4, 2) == Values{42}));
  CHECK(samples.dense(4)[3] == 0);
  CHECK(samples.first_values(1)[0] == 3 && samples.first_values(2)[2] == 2);

  // Lines next to shared values use those for slots they lack.
  samples.BeginRequest();
  samples.AddFeasign(0, 50);
  samples.AddLines(TextFormat::kSlot, "history:1\nid:51 history:2");
  samples.AddLines(TextFormat::kSlot, "id:52");
  samples.EndRequest();
  CHECK((samples.request(2).count == 3 && ValuesOf(samples, 5, 0) == Values{50}));
  CHECK((ValuesOf(samples, 6, 0) == Values{51} && ValuesOf(samples, 7, 0) == Values{52}));
}

void TestErrors() {
  const Plan plan = MakePlan();
  Samples samples;
  samples.Reset(&plan);
  samples.BeginRequest();
  samples.BeginSample();
  CHECK(ErrorOf(Code::kData, [&] { samples.AddText(0, "12x"); }).find("'id'") != std::string::npos);
  ErrorOf(Code::kData, [&] { samples.AddText(0, "-1"); });
  ErrorOf(Code::kData, [&] { samples.AddText(0, "18446744073709551616"); });
  samples.AddText(0, "18446744073709551615");
  samples.AddText(1, "");
  ErrorOf(Code::kData, [&] { samples.SetRawDense(0, 0, std::nan("")); });
  ErrorOf(Code::kData, [&] { samples.SetRawDense(2, 0, 1e300); });
  ErrorOf(Code::kData, [&] { samples.SetDense(2, 0, std::numeric_limits<float>::infinity()); });
  ErrorOf(Code::kData, [&] { samples.SetDense(1, 2, 0); });
  samples.EndRequest();
  CHECK(ValuesOf(samples, 0, 0) == std::vector<uint64_t>{~uint64_t{0}} && ValuesOf(samples, 0, 1).empty());
  samples.BeginRequest();
  const std::string bad = ErrorOf(Code::kData, [&] { samples.AddLines(TextFormat::kSlot, "id:1\n\nid:x\n"); });
  CHECK(bad.find("line 3: ") == 0);
  ErrorOf(Code::kData, [&] { samples.AddLines(TextFormat::kFeasign, "1 1 5:id"); });  // it has no dense slots
  samples.DropRequest();
  CHECK(samples.size() == 1 && samples.requests() == 1);
  Plan wide = MakePlan();
  wide.sparse[0].pieces = {{2, 4, 0}};
  ErrorOf(Code::kConfig, [&] { wide.Seal(); });
}

}  // namespace

int main() {
  TestSameAsParser();
  TestShared();
  TestErrors();
}
