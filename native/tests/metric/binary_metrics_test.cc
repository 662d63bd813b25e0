// Metrics: merging, agreement with counting pairs, many threads at once, and states damaged in every way.
#include "metric/binary_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "metric/exact_auc.h"
#include "metric/group_auc.h"
#include "tests/check.h"
#include "util/crc32c.h"
#include "util/status.h"

namespace elasticctr::metric {
namespace {

struct Samples {
  std::vector<float> logits, labels, weights;
  std::vector<uint64_t> groups;
};

Samples MakeSamples(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(-2.0f, 1.5f);
  std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
  Samples samples;
  for (size_t i = 0; i < n; ++i) {
    const float logit = normal(random);
    samples.logits.push_back(i % 50 == 0 ? -1.0f : logit);
    samples.labels.push_back(uniform(random) < 1.0f / (1.0f + std::exp(-logit)) ? 1.0f : 0.0f);
    samples.weights.push_back(uniform(random) * 3.0f);
    samples.groups.push_back(~uint64_t{0} - random() % 40);
  }
  return samples;
}

double CountPairs(const Samples& s, size_t n) {
  double won = 0.0;
  double pairs = 0.0;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      if (s.labels[i] != 1.0f || s.labels[j] != 0.0f) continue;
      const double weight = static_cast<double>(s.weights[i]) * s.weights[j];
      pairs += weight;
      won += weight * (s.logits[i] > s.logits[j] ? 1.0 : s.logits[i] == s.logits[j] ? 0.5 : 0.0);
    }
  }
  return won / pairs;
}

void TestAucEqualsCountedPairs() {
  const Samples s = MakeSamples(700, 1);
  const double expected = CountPairs(s, 700);
  uint64_t invalid = 0;
  CHECK(std::abs(ExactAuc(s.logits.data(), s.labels.data(), s.weights.data(), 700, &invalid) - expected) < 1e-6);
  CHECK(invalid == 0);
  BinaryMetrics metrics;
  metrics.Update(s.logits.data(), s.labels.data(), s.weights.data(), 700);
  CHECK(std::abs(metrics.Auc() - expected) < 1e-4);
  CHECK(std::isnan(ExactAuc(s.logits.data(), s.labels.data(), nullptr, 0, &invalid)));
}

void TestBucketsRiseWithLogits() {
  std::mt19937 random(7);
  std::vector<float> logits = {-std::numeric_limits<float>::infinity(),
                               -256.0f,
                               -1e-30f,
                               0.0f,
                               1e-30f,
                               255.99f,
                               256.0f,
                               std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::denorm_min()};
  for (int i = 0; i < 20000; ++i) {
    logits.push_back(
        std::ldexp(static_cast<float>(random()) / 4294967296.0f - 0.5f, static_cast<int>(random() % 60) - 40));
  }
  std::sort(logits.begin(), logits.end());
  int32_t last = 0;
  for (float logit : logits) {
    const int32_t bucket = BucketOfLogit(logit);
    CHECK(bucket >= last && bucket < kScoreBuckets);
    last = bucket;
    const double middle = LogitOfBucket(bucket);
    if (std::abs(logit) < 256.0f) CHECK(std::abs(middle - logit) <= std::abs(logit) / 8192 + 1e-6);
  }
  CHECK(BucketOfLogit(-0.0f) == BucketOfLogit(0.0f));
}

void TestThreadsTogetherEqualOneAlone() {
  const Samples s = MakeSamples(40000, 2);
  BinaryMetrics alone, together;
  GroupAuc alone_groups, together_groups;
  alone.Update(s.logits.data(), s.labels.data(), s.weights.data(), 40000);
  alone_groups.Update(s.groups.data(), s.logits.data(), s.labels.data(), s.weights.data(), 40000);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      BinaryMetrics own;
      GroupAuc own_groups;
      for (size_t i = t * 10000; i < (t + 1) * 10000; i += 1000) {
        BinaryMetrics& target = i % 2000 == 0 ? together : own;
        target.Update(&s.logits[i], &s.labels[i], &s.weights[i], 1000);
        GroupAuc& groups = i % 2000 == 0 ? together_groups : own_groups;
        groups.Update(&s.groups[i], &s.logits[i], &s.labels[i], &s.weights[i], 1000);
        (void)together.Auc();
        (void)together_groups.Compute();
      }
      together.Merge(own);
      together_groups.Merge(own_groups);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(together.State() == alone.State());
  CHECK(together.Auc() == alone.Auc());
  BinaryMetrics taken;
  taken.MergeState(alone.Take());
  CHECK(taken.State() == together.State());
  CHECK(alone.State() == BinaryMetrics().State());
  taken.MergeState(together.State());
  CHECK(taken.totals().samples == 80000);
  CHECK(together_groups.State() == alone_groups.State());
  CHECK(together_groups.Compute().auc == alone_groups.Compute().auc);
}

void TestMergeWithItselfDoubles() {
  const Samples s = MakeSamples(1000, 3);
  BinaryMetrics metrics;
  metrics.Update(s.logits.data(), s.labels.data(), nullptr, 1000);
  const double auc = metrics.Auc();
  metrics.Merge(metrics);
  CHECK(metrics.totals().samples == 2000);
  CHECK(metrics.Auc() == auc);
}

// Restores damaged bytes; each must be refused as Corruption or FailedPrecondition, or be a valid state.
template <typename T>
void FuzzRestore(const std::string& state, uint32_t seed, int rounds) {
  std::mt19937 random(seed);
  T metrics;
  for (int round = 0; round < rounds; ++round) {
    std::string bytes = state.substr(0, round % 3 == 0 ? random() % (state.size() + 1) : state.size());
    for (uint32_t k = random() % 4; k > 0 && !bytes.empty(); --k)
      bytes[random() % bytes.size()] ^= static_cast<char>(1 + random() % 255);
    // With a correct checksum the code behind that check is tested too.
    if (round % 2 == 0 && bytes.size() >= 4) {
      const uint32_t crc = Crc32c(0, bytes.data(), bytes.size() - 4);
      bytes.replace(bytes.size() - 4, 4, reinterpret_cast<const char*>(&crc), 4);
    }
    try {
      metrics.Restore(bytes);
      (void)metrics.State();
    } catch (const Error& e) {
      CHECK(e.code() == Code::kCorruption || e.code() == Code::kFailedPrecondition);
    }
  }
}

void TestDamagedStatesAreRefused() {
  const Samples s = MakeSamples(30, 4);
  BinaryMetrics metrics;
  metrics.Update(s.logits.data(), s.labels.data(), s.weights.data(), 30);
  GroupAuc groups;
  groups.Update(s.groups.data(), s.logits.data(), s.labels.data(), s.weights.data(), 30);
  BinaryMetrics restored;
  restored.Restore(metrics.State());
  CHECK(restored.State() == metrics.State());
  FuzzRestore<GroupAuc>(groups.State(), 5, 3000);
  FuzzRestore<BinaryMetrics>(metrics.State(), 6, 300);
}

}  // namespace
}  // namespace elasticctr::metric

int main() {
  using namespace elasticctr::metric;
  TestAucEqualsCountedPairs();
  TestBucketsRiseWithLogits();
  TestThreadsTogetherEqualOneAlone();
  TestMergeWithItselfDoubles();
  TestDamagedStatesAreRefused();
  return 0;
}
