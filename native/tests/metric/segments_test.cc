// Segments and bootstrap: merging, the bound on memory, many threads at once, and states damaged in every way.
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "metric/binary_metrics.h"
#include "metric/bootstrap.h"
#include "metric/group_auc.h"
#include "metric/segment_metrics.h"
#include "tests/check.h"
#include "util/crc32c.h"
#include "util/status.h"

namespace elasticctr::metric {
namespace {

struct Samples {
  std::vector<float> logits, others, labels, weights;
  std::vector<uint64_t> values;
  std::vector<int32_t> offsets = {0};
};

Samples MakeSamples(size_t n, uint64_t distinct, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(-1.0f, 1.5f);
  Samples s;
  for (size_t i = 0; i < n; ++i) {
    s.logits.push_back(i % 20 == 0 ? -1.0f : normal(random));
    s.others.push_back(normal(random));
    s.labels.push_back(static_cast<float>(random() % 3 == 0));
    s.weights.push_back(static_cast<float>(random() % 4096) / 1024.0f);
    for (uint32_t k = random() % 3; k > 0; --k) s.values.push_back(~uint64_t{0} - random() % distinct);
    s.offsets.push_back(static_cast<int32_t>(s.values.size()));
  }
  s.logits[1] = std::numeric_limits<float>::quiet_NaN();
  s.logits[2] = std::numeric_limits<float>::infinity();
  s.weights[3] = -1.0f;
  return s;
}

void Add(const Samples& s, size_t first, size_t n, SegmentMetrics* to) {
  to->Update(s.values.data(), &s.offsets[first], &s.logits[first], &s.labels[first], &s.weights[first], n);
}

void Add(const Samples& s, size_t first, size_t n, Bootstrap* to) {
  to->Update(&s.logits[first], to->is_paired() ? &s.others[first] : nullptr, &s.labels[first], &s.weights[first], n);
}

void Add(const Samples& s, size_t first, size_t n, GroupAuc* to) {
  to->Update(s.values.data(), &s.logits[first], &s.labels[first], &s.weights[first], n);
}

template <typename T, typename... Arguments>
void CheckThreadsTogetherEqualOneAlone(const Samples& s, Arguments... arguments) {
  T alone(arguments...);
  T together(arguments...);
  Add(s, 0, 8000, &alone);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      T own(arguments...);
      for (size_t i = t * 2000; i < (t + 1) * 2000; i += 500) {
        Add(s, i, 500, i % 1000 == 0 ? &together : &own);
        (void)together.State();
      }
      together.Merge(own);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(together.State() == alone.State());
  T restored(arguments...);
  restored.Restore(alone.State());
  CHECK(restored.State() == alone.State());
}

void TestSegmentsKeepAllOfWhatTheyKeep() {
  const Samples s = MakeSamples(5000, 700, 1);
  SegmentMetrics all(100000);
  SegmentMetrics few(50);
  Add(s, 0, 5000, &all);
  Add(s, 0, 5000, &few);
  CHECK(all.level() == 0 && few.level() >= 3);
  CHECK(all.samples() == 4998 && all.invalid() == 2 && few.samples() == 4998);
  const std::vector<SegmentRow> kept = few.Rows();
  CHECK(kept.size() <= 50 && kept.size() >= 10);
  size_t found = 0;
  for (const SegmentRow& row : all.Rows()) {
    if (found < kept.size() && kept[found].value == row.value) {
      CHECK(kept[found].sums.samples == row.sums.samples && kept[found].sums.loss == row.sums.loss);
      ++found;
    }
  }
  CHECK(found == kept.size());
}

void TestReplicatesDependOnTheSeedAlone() {
  const Samples s = MakeSamples(3000, 10, 2);
  Bootstrap bootstrap(true);
  Add(s, 0, 3000, &bootstrap);
  const std::vector<Replicate> once = bootstrap.Draw(40, 7);
  const std::vector<Replicate> again = bootstrap.Draw(20, 7);
  const std::vector<Replicate> other = bootstrap.Draw(20, 8);
  double sum = 0.0;
  for (size_t r = 0; r < 40; ++r) sum += once[r].auc / 40;
  for (size_t r = 0; r < 20; ++r) {
    CHECK(once[r].auc == again[r].auc && once[r].other_logloss == again[r].other_logloss);
    CHECK(once[r].auc != other[r].auc);
  }
  CHECK(std::abs(sum - bootstrap.Estimate().auc) < 0.01);
  BinaryMetrics metrics;
  metrics.Update(s.logits.data(), s.labels.data(), s.weights.data(), 3000);
  CHECK(std::abs(metrics.Auc() - bootstrap.Estimate().auc) <= metrics.AucBound() + 1e-12);
  CHECK(std::isnan(Bootstrap(false).Estimate().auc) && std::isnan(Bootstrap(true).Draw(2, 0)[1].logloss));
}

void TestRankingOfOneGroup() {
  const float scores[] = {3.0f, 2.0f, 2.0f, 1.0f};
  const float labels[] = {0.0f, 1.0f, 0.0f, 1.0f};
  const uint64_t groups[] = {5, 5, 5, 5};
  GroupAuc group;
  group.Update(groups, scores, labels, nullptr, 4);
  const GroupedRanking two = group.Rank(2);
  CHECK(two.groups == 1 && std::abs(two.recall - 0.25) < 1e-12);
  CHECK(std::abs(two.ndcg - 0.5 / std::log2(3.0) / (1.0 + 1.0 / std::log2(3.0))) < 1e-12);
  CHECK(group.Rank(100).recall == 1.0);
  CHECK(group.Rows(4).size() == 1 && group.Rows(5).empty());
  CHECK(std::abs(group.Rows(1)[0].auc - 0.125) < 1e-12);
  CHECK(std::isnan(GroupAuc().Rank(3).ndcg));
}

void TestPrecisionOfOneClassAndNothing() {
  BinaryMetrics metrics;
  CHECK(std::isnan(metrics.AveragePrecision().value) && std::isnan(metrics.AucBound()));
  CHECK(std::isnan(metrics.CalibrationError(10, true)));
  const float score = 0.0f;
  const float label = 1.0f;
  metrics.Update(&score, &label, nullptr, 1);
  CHECK(metrics.AveragePrecision().value == 1.0 && metrics.AveragePrecision().bound == 0.0);
  CHECK(std::abs(metrics.CalibrationError(10, false) - 0.5) < 1e-6);
}

// Restores damaged bytes; each must be refused as Corruption or FailedPrecondition, or be a valid state.
template <typename T, typename... Arguments>
void FuzzRestore(const std::string& state, uint32_t seed, int rounds, Arguments... arguments) {
  std::mt19937 random(seed);
  T metrics(arguments...);
  for (int round = 0; round < rounds; ++round) {
    std::string bytes = state.substr(0, round % 3 == 0 ? random() % (state.size() + 1) : state.size());
    for (uint32_t k = random() % 4; k > 0 && !bytes.empty(); --k) {
      bytes[random() % bytes.size()] ^= static_cast<char>(1 + random() % 255);
    }
    // With a correct checksum the code behind that check is tested too.
    if (round % 2 == 0 && bytes.size() >= 4) {
      const uint32_t crc = Crc32c(0, bytes.data(), bytes.size() - 4);
      bytes.replace(bytes.size() - 4, 4, reinterpret_cast<const char*>(&crc), 4);
    }
    try {
      metrics.Restore(bytes);
      (void)metrics.State();
      if constexpr (std::is_same_v<T, Bootstrap>) (void)metrics.Draw(2, 0);
      if constexpr (std::is_same_v<T, GroupAuc>) (void)metrics.Rank(3), (void)metrics.Rows(2);
      if constexpr (std::is_same_v<T, SegmentMetrics>) (void)metrics.Rows();
    } catch (const Error& e) {
      CHECK(e.code() == Code::kCorruption || e.code() == Code::kFailedPrecondition);
    }
  }
}

template <typename T, typename... Arguments>
void CheckDamagedStatesAreRefused(const Samples& s, Arguments... arguments) {
  T metrics(arguments...);
  Add(s, 0, 40, &metrics);
  FuzzRestore<T>(metrics.State(), 9, 3000, arguments...);
}

}  // namespace
}  // namespace elasticctr::metric

int main() {
  using namespace elasticctr::metric;
  const Samples s = MakeSamples(8000, 900, 3);
  CheckThreadsTogetherEqualOneAlone<SegmentMetrics>(s, size_t{100});
  CheckThreadsTogetherEqualOneAlone<Bootstrap>(s, true);
  CheckThreadsTogetherEqualOneAlone<Bootstrap>(s, false);
  TestSegmentsKeepAllOfWhatTheyKeep();
  TestReplicatesDependOnTheSeedAlone();
  TestRankingOfOneGroup();
  TestPrecisionOfOneClassAndNothing();
  CheckDamagedStatesAreRefused<SegmentMetrics>(s, size_t{100});
  CheckDamagedStatesAreRefused<Bootstrap>(s, true);
  CheckDamagedStatesAreRefused<GroupAuc>(s);
  return 0;
}
