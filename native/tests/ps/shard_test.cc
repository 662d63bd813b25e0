// A shard compared with a step-by-step reference in float64.
#include <algorithm>
#include <cmath>

#include "ps/shard/cursor_error.h"
#include "ps/shard/dense_file.h"
#include "tests/ps/fixture.h"
#include "util/crc32c.h"
#include "util/status.h"

namespace elasticctr::ps {
namespace {

// Adam and Adagrad in float64, rows by feasign.
struct Reference {
  struct Row {
    double w[kWide], m[kWide] = {}, v[kWide] = {}, linear = 0, sum = 0;
  };
  std::map<uint64_t, Row> rows;
  std::vector<double> dense, dense_m, dense_v;
  int steps = 0;

  void Insert(Shard* shard, const std::vector<uint64_t>& feasigns) {
    const std::vector<float> initial = Pull(shard, feasigns, true);
    for (size_t i = 0; i < feasigns.size(); ++i) {
      if (rows.count(feasigns[i]) != 0) continue;
      Row& row = rows[feasigns[i]];
      for (size_t j = 0; j < kWide; ++j) row.w[j] = initial[i * kWide + j];
    }
  }
  static void Adam(double* w, double* m, double* v, double g, double rate, int step) {
    *m = 0.9 * *m + 0.1 * g;
    *v = 0.999 * *v + 0.001 * g * g;
    *w -= rate * (*m / (1 - std::pow(0.9, step))) / (std::sqrt(*v / (1 - std::pow(0.999, step))) + 1e-8);
  }
  void Step(const std::vector<std::pair<const Batch*, double>>& parts) {
    ++steps;
    std::map<uint64_t, std::pair<std::array<double, kWide>, double>> sums;
    std::vector<double> dense_sum(kFloats);
    for (const auto& [batch, share] : parts) {
      for (size_t i = 0; i < batch->feasigns.size(); ++i) {
        auto& sum = sums[batch->feasigns[i]];
        for (size_t j = 0; j < kWide; ++j) sum.first[j] += share * batch->wide[i * kWide + j];
        sum.second += share * batch->narrow[i];
      }
      for (size_t i = 0; i < kFloats; ++i) dense_sum[i] += share * batch->dense[i];
    }
    for (const auto& [feasign, sum] : sums) {
      const auto found = rows.find(feasign);
      if (found == rows.end()) continue;
      Row& row = found->second;
      for (size_t j = 0; j < kWide; ++j) Adam(&row.w[j], &row.m[j], &row.v[j], sum.first[j], 0.01, steps);
      row.sum += sum.second * sum.second;
      row.linear -= 0.05 * sum.second / (std::sqrt(row.sum) + 1e-8);
    }
    for (size_t i = 0; i < kFloats; ++i) Adam(&dense[i], &dense_m[i], &dense_v[i], dense_sum[i], 0.01, steps);
  }
  void Compare(Shard* shard) const {
    for (const auto& [feasign, row] : rows) {
      const std::vector<float> got = Pull(shard, std::vector<uint64_t>{feasign}, false);
      for (size_t j = 0; j < kWide; ++j) CHECK(std::fabs(got[j] - row.w[j]) < 2e-5);
      CHECK(std::fabs(got[kWide] - row.linear) < 2e-5);
    }
    const std::vector<float> values = DenseOf(*shard);
    for (size_t i = 0; i < kFloats; ++i) CHECK(std::fabs(values[i] - dense[i]) < 2e-5);
  }
  Reference() : dense(kFloats), dense_m(kFloats), dense_v(kFloats) {
    for (size_t i = 0; i < kFloats; ++i) dense[i] = 0.01 * static_cast<double>(i);
  }
};

void TestAgainstReference() {
  Shard shard(MakeShardSettings());
  SetDense(&shard);
  Reference reference;
  for (uint32_t k = 0; k < 80; ++k) {
    Batch batch = Batch::Random(k);
    batch.from = k;
    batch.to = k + 1;
    if (k % 3 != 0) reference.Insert(&shard, batch.feasigns);  // the others have no rows yet and stay unchanged
    CHECK(Push(&shard, batch)->outcome == PushOutcome::kApplied);
    reference.Step({{&batch, 1.0}});
  }
  reference.Compare(&shard);
  CHECK(shard.step() == 80 && shard.GetStats().pushes == 80);
}

// Three trainers equal one with the union of their batches, and the order of arrival does not affect even the last bit.
void TestSyncIsUnion() {
  Reference reference;
  std::map<std::string, std::string> expected;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    std::mt19937_64 rng(seed);
    Shard shard(MakeShardSettings());
    SetDense(&shard);
    shard.SetGroup({3, 1, 2});
    for (uint32_t step = 0; step < 40; ++step) {
      std::vector<Batch> batches = GroupOf(step, GroupMode::kAll);
      for (const Batch& batch : batches) {
        if (seed == 0) reference.Insert(&shard, batch.feasigns);
        Pull(&shard, batch.feasigns, true);
      }
      if (seed == 0) reference.Step({{&batches[0], 10.0 / 140}, {&batches[1], 40.0 / 140}, {&batches[2], 90.0 / 140}});
      std::shuffle(batches.begin(), batches.end(), rng);
      std::vector<std::shared_ptr<Outcome>> outcomes;
      for (const Batch& batch : batches) {
        for (const auto& outcome : outcomes) CHECK(!outcome->is_over());
        outcomes.push_back(Push(&shard, batch));
      }
      for (const auto& outcome : outcomes) CHECK(outcome->outcome == PushOutcome::kApplied);
    }
    CHECK(shard.step() == 40);
    if (seed == 0) reference.Compare(&shard);
    const auto files = SavedFiles(shard, "sync");
    if (seed == 0) expected = files;
    CHECK(files == expected);
  }
}

void TestHybrid() {
  Shard shard(MakeShardSettings());
  SetDense(&shard);
  shard.SetGroup({1, 2});
  const auto batches = GroupOf(0, GroupMode::kDense);
  Pull(&shard, batches[0].feasigns, true);
  const auto rows = Pull(&shard, batches[0].feasigns, false);
  const auto dense = DenseOf(shard);
  const auto first = Push(&shard, batches[0]);
  CHECK(!first->is_over());
  CHECK(Pull(&shard, batches[0].feasigns, false) != rows && DenseOf(shard) == dense);
  CHECK(shard.Cursors(std::vector<uint64_t>{101})[0] == 1);
  // A save during this includes the dense gradient of the batch that its cursor counts.
  const std::string directory = MakeDirectory("hybrid");
  shard.Save(directory);
  Shard loaded(MakeShardSettings());
  loaded.Load(directory);
  CHECK(DenseOf(loaded) != dense && DenseOf(shard) == dense);
  // Sent again over a new connection, it keeps waiting in its place.
  const auto again = Push(&shard, batches[0]);
  CHECK(!again->is_over());
  const auto second = Push(&shard, batches[1]);
  CHECK(first->is_over() && again->outcome == PushOutcome::kApplied && second->outcome == PushOutcome::kApplied);
  CHECK(DenseOf(shard) != dense && shard.step() == 2);
}

void TestWrongShard() {
  Shard shard(MakeShardSettings(0, 2)), other(MakeShardSettings(1, 2));
  const Batch batch = Batch::Random(1);
  const auto body = batch.Body(other);
  bool is_refused = false;
  try {
    shard.Push(ReadPush(body, shard.shapes()), [](const PushResult*, const std::exception*) {});
  } catch (const Error& error) {
    is_refused = error.code() == Code::kFailedPrecondition;
  }
  CHECK(is_refused && shard.Cursors(std::vector<uint64_t>{7})[0] == 0);
}

void TestDeltas() {
  Shard shard(MakeShardSettings());
  SetDense(&shard);
  Batch batch = Batch::Random(1);
  batch.kind = PushKind::kDeltas;
  const auto before = Pull(&shard, batch.feasigns, true);
  const auto dense = DenseOf(shard);
  CHECK(Push(&shard, batch)->outcome == PushOutcome::kApplied);
  const auto after = Pull(&shard, batch.feasigns, false);
  for (size_t i = 0; i < batch.wide.size(); ++i) CHECK(after[i] == before[i] + batch.wide[i]);
  for (size_t i = 0; i < kFloats; ++i) CHECK(DenseOf(shard)[i] == dense[i] + batch.dense[i]);
}

void TestDenseOptimizers() {
  for (const auto kind : {DenseOptimizerKind::kSgd, DenseOptimizerKind::kAdam, DenseOptimizerKind::kAdamW,
                          DenseOptimizerKind::kAdagrad}) {
    DenseOptimizerSettings settings;
    settings.kind = kind;
    settings.learning_rate = 0.02f;
    settings.weight_decay = 0.01f;
    settings.clip_norm = 1.0f;
    settings.epsilon = kind == DenseOptimizerKind::kAdagrad ? 1e-10f : 1e-8f;
    constexpr size_t kCount = 37;
    DensePart part(settings, kCount);
    std::vector<float> start(kCount);
    for (size_t i = 0; i < kCount; ++i) start[i] = 0.1f * static_cast<float>(i) - 1.0f;
    part.Set(start);
    std::vector<double> w(start.begin(), start.end()), a(kCount), b(kCount);
    std::mt19937_64 rng(1);
    for (int step = 1; step <= 50; ++step) {
      std::vector<float> g(kCount);
      for (float& value : g)
        value = static_cast<float>(static_cast<int>(rng() % 201) - 100) * (step % 2 ? 0.01f : 1e-4f);
      double norm = 0;
      for (const float value : g) norm += double{value} * value;
      const double clip = std::min(1.0, 1.0 / (std::sqrt(norm) + 1e-6)), scale = step % 3 == 0 ? 0.5 : 1.0;
      const double rate = 0.02f * scale, decay = 0.01f;
      part.Step(g, static_cast<float>(scale));
      for (size_t i = 0; i < kCount; ++i) {
        double gradient = g[i] * clip;
        if (kind == DenseOptimizerKind::kAdamW) {
          w[i] *= 1 - rate * decay;
        } else {
          gradient += decay * w[i];
        }
        if (kind == DenseOptimizerKind::kSgd) {
          w[i] -= rate * gradient;
        } else if (kind == DenseOptimizerKind::kAdagrad) {
          a[i] += gradient * gradient;
          w[i] -= rate * gradient / (std::sqrt(a[i]) + 1e-10);
        } else {
          Reference::Adam(&w[i], &a[i], &b[i], gradient, rate, step);
        }
      }
    }
    for (size_t i = 0; i < kCount; ++i) CHECK(std::fabs(part.values()[i] - w[i]) < 1e-5 * (1 + std::fabs(w[i])));
  }
}

}  // namespace
}  // namespace elasticctr::ps

int main() {
  using namespace elasticctr::ps;
  TestDenseOptimizers();
  TestAgainstReference();
  TestSyncIsUnion();
  TestHybrid();
  TestWrongShard();
  TestDeltas();
  return 0;
}
