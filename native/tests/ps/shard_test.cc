// A shard against a reference in float64 that is written down step by step, and the rules that make a push count once.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <thread>

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
    if (k % 3 != 0) reference.Insert(&shard, batch.feasigns);  // the others have no rows yet and are left alone
    CHECK(Push(&shard, batch)->outcome == PushOutcome::kApplied);
    reference.Step({{&batch, 1.0}});
  }
  reference.Compare(&shard);
  CHECK(shard.step() == 80 && shard.GetStats().pushes == 80);
}

std::vector<Batch> GroupOf(uint32_t step, GroupMode mode) {
  std::vector<Batch> batches;
  for (uint64_t trainer = 1; trainer <= 3; ++trainer) {
    Batch batch = Batch::Random(step * 10 + trainer, 60);
    batch.trainer = trainer;
    batch.chunk = 100 + trainer;
    batch.from = step;
    batch.to = step + 1;
    batch.weight = static_cast<uint32_t>(10 * trainer * trainer);
    batch.group = mode;
    batches.push_back(batch);
  }
  return batches;
}

// Three trainers are one with the union of their batches, and who comes first does not matter to the last bit.
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
  // What is saved meanwhile has the dense gradient of the batch its cursor counts.
  const std::string directory = MakeDirectory("hybrid");
  shard.Save(directory);
  Shard loaded(MakeShardSettings());
  loaded.Load(directory);
  CHECK(DenseOf(loaded) != dense && DenseOf(shard) == dense);
  // Sent again over a new connection it waits in its own place.
  const auto again = Push(&shard, batches[0]);
  CHECK(!again->is_over());
  const auto second = Push(&shard, batches[1]);
  CHECK(first->is_over() && again->outcome == PushOutcome::kApplied && second->outcome == PushOutcome::kApplied);
  CHECK(DenseOf(shard) != dense && shard.step() == 2);
}

void ExpectCursor(Shard* shard, const Batch& batch, uint32_t cursor) {
  try {
    Push(shard, batch);
  } catch (const CursorError& error) {
    CHECK(error.cursor() == cursor && error.chunk() == batch.chunk);
    return;
  }
  CHECK(!"a push that does not fit was taken");
}

void TestCursors() {
  Shard shard(MakeShardSettings());
  SetDense(&shard);
  Batch batch = Batch::Random(1);
  Pull(&shard, batch.feasigns, true);
  const auto at = [&](uint32_t from, uint32_t to) {
    Batch moved = batch;
    moved.from = from;
    moved.to = to;
    return moved;
  };
  ExpectCursor(&shard, at(1, 2), 0);  // a gap
  CHECK(Push(&shard, at(0, 3))->outcome == PushOutcome::kApplied);
  const auto rows = Pull(&shard, batch.feasigns, false);
  CHECK(Push(&shard, at(0, 3))->outcome == PushOutcome::kBefore);  // a repeat
  CHECK(Push(&shard, at(1, 2))->outcome == PushOutcome::kBefore);
  ExpectCursor(&shard, at(2, 4), 3);  // an overlap
  ExpectCursor(&shard, at(4, 5), 3);
  CHECK(Pull(&shard, batch.feasigns, false) == rows && shard.step() == 1);
  CHECK(shard.Cursors(std::vector<uint64_t>{7, 8}) == (std::vector<uint32_t>{3, 0}));

  Batch bad = at(3, 4);
  bad.wide[5] = std::numeric_limits<float>::quiet_NaN();
  CHECK(Push(&shard, bad)->outcome == PushOutcome::kNotFinite);
  bad = at(4, 5);
  bad.dense[3] = std::numeric_limits<float>::infinity();
  CHECK(Push(&shard, bad)->outcome == PushOutcome::kNotFinite);
  bad = at(5, 6);
  bad.narrow[0] = 1e30f;  // its square would be infinite
  CHECK(Push(&shard, bad)->outcome == PushOutcome::kNotFinite);
  Batch nothing = at(6, 8);
  nothing.kind = PushKind::kNothing;
  CHECK(Push(&shard, nothing)->outcome == PushOutcome::kApplied);
  CHECK(Pull(&shard, batch.feasigns, false) == rows && shard.step() == 1);
  CHECK(shard.Cursors(std::vector<uint64_t>{7})[0] == 8 && shard.GetStats().not_finite == 3);

  shard.ForgetChunks(8);
  CHECK(Push(&shard, at(0, 1))->outcome == PushOutcome::kBefore);
  CHECK(shard.Cursors(std::vector<uint64_t>{7})[0] == UINT32_MAX && Pull(&shard, batch.feasigns, false) == rows);
}

Code RefusalOf(const std::function<void()>& ask, uint64_t era) {
  try {
    ask();
  } catch (const EraError& error) {
    CHECK(error.era() == era);
    return error.code();
  } catch (const Error& error) {
    CHECK(error.code() != Code::kFailedPrecondition);
    return error.code();
  }
  return Code{0};
}

// Work begun before a load changes nothing after it, though its cursor would fit; work that is ahead has to wait.
void TestEras() {
  Shard shard(MakeShardSettings());
  SetDense(&shard);
  Batch batch = Batch::Random(1);
  Pull(&shard, batch.feasigns, true);
  CHECK(Push(&shard, batch)->outcome == PushOutcome::kApplied);
  const std::string directory = MakeDirectory("eras");
  shard.Save(directory);
  const auto saved = SavedFiles(shard, "eras-before");
  batch.from = 1;
  batch.to = 2;
  Pull(&shard, Batch::Random(2).feasigns, true);
  shard.SetGroup({1, 2});
  Batch waits = batch;
  waits.group = GroupMode::kAll;
  const auto waiting = Push(&shard, waits);
  CHECK(!waiting->is_over());

  shard.Load(directory, 5);
  CHECK(shard.era() == 5 && waiting->error.find("went back") != std::string::npos);
  CHECK(RefusalOf([&] { Push(&shard, batch); }, 5) == Code::kFailedPrecondition);
  CHECK(RefusalOf([&] { Push(&shard, waits); }, 5) == Code::kFailedPrecondition);
  CHECK(RefusalOf([&] { Pull(&shard, Batch::Random(2).feasigns, true); }, 5) == Code::kFailedPrecondition);
  CHECK(RefusalOf([&] { shard.CheckEra(4); }, 5) == Code::kFailedPrecondition);
  CHECK(shard.GetStats().old_era == 4);
  batch.era = 6;
  CHECK(RefusalOf([&] { Push(&shard, batch); }, 5) == Code::kUnavailable);
  CHECK(RefusalOf([&] { Pull(&shard, batch.feasigns, false, false, 6); }, 5) == Code::kUnavailable);
  CHECK(shard.GetStats().old_era == 4 && SavedFiles(shard, "eras-after") == saved);
  shard.SetGroup({});
  batch.era = 5;
  CHECK(Push(&shard, batch)->outcome == PushOutcome::kApplied);
  shard.Reset(6);
  CHECK(RefusalOf([&] { Push(&shard, batch); }, 6) == Code::kFailedPrecondition);
  CHECK(shard.GetStats().rows == 0 && shard.Cursors(std::vector<uint64_t>{7})[0] == 0);
}

// Pushes of one era race with loads of the next: what is applied is of the era the shard is in.
void TestErasUnderLoad() {
  Shard shard(MakeShardSettings());
  std::atomic<uint64_t> known{0};
  std::atomic<bool> is_over{false};
  std::vector<std::thread> trainers;
  for (uint64_t trainer = 1; trainer <= 2; ++trainer) {
    trainers.emplace_back([&, trainer] {
      Batch batch = Batch::Random(trainer, 300, false);
      batch.trainer = trainer;
      while (!is_over) {
        batch.era = known;
        batch.chunk = batch.era * 10 + trainer;
        batch.from = 0;
        try {
          for (; batch.from < 40; ++batch.from) {
            batch.to = batch.from + 1;
            Pull(&shard, batch.feasigns, true, false, batch.era);
            Push(&shard, batch);
          }
        } catch (const EraError&) {
        } catch (const Error& error) {
          CHECK(error.code() == Code::kUnavailable);
        }
      }
    });
  }
  for (uint64_t era = 1; era <= 60; ++era) {
    if (era % 2 == 0) known = era;  // known before it is loaded, or after
    shard.Reset(era);
    known = era;
    for (uint64_t old = 0; old < era; ++old) {
      for (const uint32_t cursor : shard.Cursors(std::vector<uint64_t>{old * 10 + 1, old * 10 + 2})) CHECK(cursor == 0);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  is_over = true;
  for (auto& trainer : trainers) trainer.join();
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

void TestGroupsThatChange() {
  Shard shard(MakeShardSettings());
  SetDense(&shard);
  shard.SetGroup({1, 2, 3});
  auto batches = GroupOf(0, GroupMode::kAll);
  for (const Batch& batch : batches) Pull(&shard, batch.feasigns, true);
  const auto first = Push(&shard, batches[0]), second = Push(&shard, batches[1]);
  CHECK(!first->is_over() && shard.GetStats().waiting == 2);
  // One who has not come leaves: the step is taken with what is there, that of one who left after it came included.
  shard.SetGroup({2});
  CHECK(first->outcome == PushOutcome::kApplied && second->outcome == PushOutcome::kApplied && shard.step() == 1);
  // Not a member yet: waits until it is one.
  const auto third = Push(&shard, batches[2]);
  CHECK(!third->is_over());
  shard.SetGroup({3});
  CHECK(third->outcome == PushOutcome::kApplied && shard.step() == 2);
  // Members without work send empty pushes, which change nothing.
  shard.SetGroup({1, 2});
  const auto rows = Pull(&shard, batches[0].feasigns, false);
  const auto dense = DenseOf(shard);
  Batch empty;
  empty.kind = PushKind::kEmpty;
  empty.group = GroupMode::kAll;
  empty.from = empty.to = 0;
  empty.weight = 0;
  const auto idle = Push(&shard, empty);
  empty.trainer = 2;
  const auto idle_too = Push(&shard, empty);
  CHECK(idle->outcome == PushOutcome::kApplied && idle_too->outcome == PushOutcome::kApplied);
  CHECK(Pull(&shard, batches[0].feasigns, false) == rows && DenseOf(shard) == dense && shard.step() == 2);
  // One works: its step is a step of its own.
  const auto working = Push(&shard, GroupOf(1, GroupMode::kAll)[0]);
  CHECK(!working->is_over());
  ++empty.chunk;  // the number of an empty push
  Push(&shard, empty);
  CHECK(working->outcome == PushOutcome::kApplied && shard.step() == 3 && DenseOf(shard) != dense);
  // Two hold the same chunk, both send its next batch: it counts once.
  Batch twin = GroupOf(2, GroupMode::kAll)[0], other = twin;
  other.trainer = 2;
  const auto one = Push(&shard, other), two = Push(&shard, twin);
  CHECK(two->outcome == PushOutcome::kApplied && one->outcome == PushOutcome::kBefore && shard.step() == 4);
}

Batch EmptyOf(uint64_t trainer, uint64_t number) {
  Batch empty;
  empty.trainer = trainer;
  empty.chunk = number;
  empty.from = empty.to = empty.weight = 0;
  empty.kind = PushKind::kEmpty;
  empty.group = GroupMode::kAll;
  return empty;
}

// PROMISE: an answer is lost and a trainer of sync sends its push again | the push is in one step of the group, never
// in two or none: which push it is decides, not how many came
void TestGroupsByIdentity() {
  Shard shard(MakeShardSettings());
  SetDense(&shard);
  shard.SetGroup({1, 2, 3});
  auto batches = GroupOf(0, GroupMode::kAll);
  for (const Batch& batch : batches) Pull(&shard, batch.feasigns, true);
  Push(&shard, batches[0]);
  Push(&shard, EmptyOf(2, 5));
  const auto last = Push(&shard, batches[2]);
  CHECK(last->outcome == PushOutcome::kApplied && shard.GetStats().rounds == 1);
  // Both are sent again. Neither takes part in the step that the others are in next.
  const auto check_again = [&](Shard* at) {
    CHECK(Push(at, batches[0])->outcome == PushOutcome::kBefore);
    CHECK(Push(at, EmptyOf(2, 5))->outcome == PushOutcome::kBefore);
    CHECK(at->GetStats().waiting == 0);
  };
  check_again(&shard);
  // Nor on a standby that began after the step.
  const std::string directory = MakeDirectory("taken-part");
  shard.SaveForStandby(directory, [] {});
  Shard standby(MakeShardSettings());
  standby.LoadFromPrimary(directory);
  standby.BecomePrimary();
  check_again(&standby);
  // A batch that another trainer's push brought: the member is in one step all the same.
  Batch twin = batches[0];
  twin.trainer = 3;
  const auto brought = Push(&shard, twin);
  CHECK(!brought->is_over() && shard.GetStats().missing == (std::vector<uint64_t>{1, 2}));
  const auto rows = Pull(&shard, twin.feasigns, false);
  Push(&shard, EmptyOf(1, 1));
  Push(&shard, EmptyOf(2, 6));
  CHECK(brought->outcome == PushOutcome::kBefore && Pull(&shard, twin.feasigns, false) == rows);
  CHECK(shard.step() == 1 && shard.GetStats().rounds == 2);
}

// PROMISE: a trainer of sync that was given up wakes up and sends batches that others brought since | it is answered at
// once, as no step of the group counts it in; nothing is applied twice and no member waits for it
void TestGroupsWithoutStragglers() {
  for (const GroupMode mode : {GroupMode::kAll, GroupMode::kDense}) {
    Shard shard(MakeShardSettings());
    SetDense(&shard);
    shard.SetGroup({1, 2});
    auto batches = GroupOf(0, mode);
    for (const Batch& batch : batches) Pull(&shard, batch.feasigns, true);
    shard.SetGroup({2});
    Batch taken = batches[0];
    taken.trainer = 2;
    CHECK(Push(&shard, taken)->outcome == PushOutcome::kApplied);
    const auto rows = Pull(&shard, taken.feasigns, false);
    const auto dense = DenseOf(shard);
    CHECK(Push(&shard, batches[0])->outcome == PushOutcome::kBefore);
    CHECK(Pull(&shard, taken.feasigns, false) == rows && DenseOf(shard) == dense && shard.step() == 1);
    CHECK(shard.GetStats().waiting == 0 && shard.GetStats().rounds == 1);
    // Counted in again it is in a step like everyone, whatever it brings.
    shard.SetGroup({1, 2});
    const auto back = Push(&shard, batches[0]);
    CHECK(!back->is_over() && shard.GetStats().missing == std::vector<uint64_t>{2});
    const auto next = Push(&shard, batches[1]);
    CHECK(back->outcome == PushOutcome::kBefore && next->outcome == PushOutcome::kApplied);
  }
}

void TestLateGroups() {
  ShardSettings settings = MakeShardSettings();
  settings.group_timeout_ms = 150;
  Shard shard(settings);
  SetDense(&shard);
  shard.SetGroup({1, 2});
  const auto wait = [](const std::shared_ptr<Outcome>& outcome, Shard* of) {
    for (int i = 0; i < 400 && of->GetStats().waiting != 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(30));  // answers are given after the lock
    return outcome;
  };
  const Batch batch = GroupOf(0, GroupMode::kAll)[0];
  const auto sync = wait(Push(&shard, batch), &shard);
  CHECK(!sync->outcome.has_value() && sync->error.find("in time") != std::string::npos);
  CHECK(shard.step() == 0 && shard.Cursors(std::vector<uint64_t>{101})[0] == 0);
  const auto dense = DenseOf(shard);
  const auto hybrid = wait(Push(&shard, GroupOf(0, GroupMode::kDense)[0]), &shard);
  CHECK(hybrid->outcome == PushOutcome::kApplied && DenseOf(shard) != dense && shard.GetStats().late == 2);
}

// Two pservers saved at different moments, loaded by `shards` others: each batch reaches the rows that lack it, and the
// end is that of a job nobody disturbed.
void TestOtherShardCounts(uint32_t shards) {
  Shard whole(MakeShardSettings());
  std::vector<std::unique_ptr<Shard>> before, after;
  SetDense(&whole);
  for (uint32_t s = 0; s < 2; ++s) {
    before.push_back(std::make_unique<Shard>(MakeShardSettings(s, 2)));
    SetDense(before.back().get());
  }
  const auto batch_at = [](uint32_t k) {
    Batch batch = Batch::Random(k);
    batch.from = k;
    batch.to = k + 1;
    return batch;
  };
  const std::string directory = MakeDirectory("moved");
  for (uint32_t k = 0; k < 30; ++k) {
    for (Shard* shard : {&whole, before[0].get(), before[1].get()}) {
      if (shard == before[1].get() && k >= 25) continue;  // saved five batches earlier
      Pull(shard, batch_at(k).feasigns, true);
      CHECK(Push(shard, batch_at(k))->outcome == PushOutcome::kApplied);
    }
  }
  for (const auto& shard : before) shard->Save(directory);
  for (uint32_t s = 0; s < shards; ++s) {
    after.push_back(std::make_unique<Shard>(MakeShardSettings(s, shards)));
    after.back()->Load(directory);
  }
  for (uint32_t k = 25; k < 40; ++k) {
    for (const auto& shard : after) {
      const uint32_t cursor = shard->Cursors(std::vector<uint64_t>{7})[0];
      CHECK(cursor == std::max(k, 25u) || cursor == 30);
      if (cursor > k) continue;
      Pull(shard.get(), batch_at(k).feasigns, true);
      CHECK(Push(shard.get(), batch_at(k))->outcome == PushOutcome::kApplied);
    }
    if (k < 30) continue;
    Pull(&whole, batch_at(k).feasigns, true);
    CHECK(Push(&whole, batch_at(k))->outcome == PushOutcome::kApplied);
  }
  // Adam's count of steps is the shard's largest: rows that caught up took theirs with a slightly later one.
  std::vector<uint64_t> all;
  for (uint64_t v = 0; v < 300; ++v) all.push_back(v * 0x9E3779B97F4A7C15ull);
  for (const uint64_t feasign : all) {
    for (const auto& shard : after) {
      const auto got = Pull(shard.get(), std::vector<uint64_t>{feasign}, false);
      if (got.empty()) continue;
      const auto expected = Pull(&whole, std::vector<uint64_t>{feasign}, false);
      for (size_t i = 0; i < got.size(); ++i) CHECK(std::fabs(got[i] - expected[i]) < 4e-3f);
      CHECK(got[kWide] == expected[kWide]);  // Adagrad has no step count: the very same
    }
  }
  uint64_t rows = 0;
  for (const auto& shard : after) {
    CHECK(shard->Cursors(std::vector<uint64_t>{7})[0] == 40);
    rows += shard->GetStats().rows;
  }
  CHECK(rows == whole.GetStats().rows);
}

// Saved and loaded in between by the same number: bit for bit as if nothing had happened.
void TestResumeIsExact() {
  for (const GroupMode mode : {GroupMode::kNone, GroupMode::kAll}) {
    Shard undisturbed(MakeShardSettings(0, 1, true));
    auto resumed = std::make_unique<Shard>(MakeShardSettings(0, 1, true));
    SetDense(&undisturbed);
    SetDense(resumed.get());
    for (uint32_t k = 0; k < 20; ++k) {
      if (k % 7 == 3) {
        const std::string directory = MakeDirectory("resume");
        resumed->Save(directory);
        resumed = std::make_unique<Shard>(MakeShardSettings(0, 1, true));
        resumed->Load(directory);
      }
      Batch batch = Batch::Random(k);
      batch.from = k;
      batch.to = k + 1;
      batch.group = mode;
      for (Shard* shard : {&undisturbed, resumed.get()}) {
        if (mode == GroupMode::kAll) shard->SetGroup({1});
        Pull(shard, batch.feasigns, true);
        CHECK(Push(shard, batch)->outcome == PushOutcome::kApplied);
      }
    }
    CHECK(SavedFiles(undisturbed, "one") == SavedFiles(*resumed, "two"));
  }
}

void TestDamagedParts() {
  Shard shard(MakeShardSettings());
  SetDense(&shard);
  for (uint32_t k = 0; k < 5; ++k) {
    Batch batch = Batch::Random(k);
    batch.from = k;
    batch.to = k + 1;
    Pull(&shard, batch.feasigns, true);
    Push(&shard, batch);
  }
  const auto files = SavedFiles(shard, "good");
  std::mt19937_64 rng(3);
  Shard loaded(MakeShardSettings());
  for (int round = 0; round < 300; ++round) {
    const std::string directory = MakeDirectory("damaged");
    auto victim = files.begin();
    std::advance(victim, rng() % files.size());
    const bool is_json = victim->first == "pserver.0.json";
    for (const auto& [name, bytes] : files) {
      std::string content = bytes;
      if (name == victim->first) {
        switch (rng() % (is_json ? 2 : 4)) {
          case 0: content.resize(rng() % content.size()); break;
          case 1: content.clear(); break;
          case 2: content += "more"; break;
          default: content[rng() % content.size()] ^= static_cast<char>(1u << rng() % 8); break;
        }
      }
      std::ofstream(directory + "/" + name, std::ios::binary) << content;
    }
    bool is_refused = false;
    try {
      loaded.Load(directory);
    } catch (const Error& error) {
      is_refused = error.code() == Code::kCorruption || error.code() == Code::kFailedPrecondition;
    }
    CHECK(is_refused && loaded.GetStats().rows == 0 && !loaded.GetStats().has_dense);
    CHECK(loaded.Cursors(std::vector<uint64_t>{7})[0] == 0);
  }
  for (const auto& [name, bytes] : files) {
    const std::string directory = MakeDirectory("damaged");
    for (const auto& [other, content] : files) {
      if (other != name) std::ofstream(directory + "/" + other, std::ios::binary) << content;
    }
    bool is_refused = false;
    try {
      loaded.Load(directory);
    } catch (const Error& error) {
      is_refused = error.code() == Code::kNotFound || error.code() == Code::kCorruption;
    }
    CHECK(is_refused);
  }
}

void WriteFile(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

// Loads and, where that worked, steps: whatever was read must be safe to use. The code of the refusal, else nothing.
std::optional<Code> TryLoad(const std::string& directory, bool is_standby = false) {
  Shard shard(MakeShardSettings());
  try {
    if (is_standby) {
      shard.LoadFromPrimary(directory);
      shard.BecomePrimary();
      shard.SetGroup({1});
    } else {
      shard.Load(directory);
    }
  } catch (const Error& error) {
    return error.code();
  }
  Batch batch = Batch::Random(99);
  batch.from = shard.Cursors(std::vector<uint64_t>{batch.chunk})[0];
  batch.to = batch.from + 1;
  if (batch.to != 0) Push(&shard, batch);
  return std::nullopt;
}

std::map<std::string, std::string> FilesOfSomeBatches(const std::string& name) {
  Shard shard(MakeShardSettings());
  SetDense(&shard);
  for (uint32_t k = 0; k < 3; ++k) {
    Batch batch = Batch::Random(k);
    batch.from = k;
    batch.to = k + 1;
    Pull(&shard, batch.feasigns, true);
    Push(&shard, batch);
  }
  return SavedFiles(shard, name);
}

void WriteAll(const std::map<std::string, std::string>& files, const std::string& directory) {
  for (const auto& [name, content] : files) WriteFile(directory + "/" + name, content);
}

// PROMISE: a crafted dense.N.bin whose checksums are right | Corruption; nothing is read beyond the state it has
void TestCraftedDense() {
  const auto files = FilesOfSomeBatches("crafted-dense");
  const std::string directory = MakeDirectory("crafted");
  WriteAll(files, directory);
  const std::string& good = files.at("dense.0.bin");
  const auto write = [&](DenseHeader header, std::string content) {
    header.payload_crc = Crc32c(0, content.data() + sizeof header, content.size() - sizeof header);
    header.crc = Crc32c(0, &header, offsetof(DenseHeader, crc));
    std::memcpy(content.data(), &header, sizeof header);
    WriteFile(directory + "/dense.0.bin", content);
  };
  DenseHeader header;
  std::memcpy(&header, good.data(), sizeof header);
  write(header, good);
  CHECK(!TryLoad(directory).has_value());
  for (uint32_t arrays = 0; arrays < 70; ++arrays) {
    if (arrays == header.state_arrays) continue;
    DenseHeader crafted = header;
    crafted.state_arrays = arrays;
    write(crafted, good.substr(0, sizeof header) + std::string((arrays + 1) * header.count * sizeof(float), '\1'));
    CHECK(TryLoad(directory) == Code::kCorruption);
  }
  std::mt19937_64 rng(5);
  for (int round = 0; round < 2000; ++round) {
    std::string content = good;
    for (uint64_t flips = 1 + rng() % 3; flips > 0; --flips) {
      content[8 + rng() % (sizeof header - 16)] ^= static_cast<char>(1u << rng() % 8);
    }
    DenseHeader crafted;
    std::memcpy(&crafted, content.data(), sizeof crafted);
    write(crafted, content);
    const auto code = TryLoad(directory);
    CHECK(!code || *code == Code::kCorruption || *code == Code::kFailedPrecondition);
  }
}

// PROMISE: a crafted pserver.N.json: ranges that end before they begin, overlap or lie beyond the vector | Corruption,
// or they are cut to what the shard has; no length underflows
void TestCraftedAhead() {
  const auto files = FilesOfSomeBatches("crafted-ahead");
  const std::string directory = MakeDirectory("crafted");
  WriteAll(files, directory);
  const auto load = [&](const std::string& ranges) {
    std::string json = files.at("pserver.0.json");
    const std::string none = "\"ahead\": []";
    CHECK(json.find(none) != std::string::npos);
    json.replace(json.find(none), none.size(), "\"ahead\": [" + ranges + "]");
    WriteFile(directory + "/pserver.0.json", json);
    return TryLoad(directory);
  };
  const auto range = [](uint64_t first, uint64_t last, uint64_t first_bucket = 0, uint64_t last_bucket = 0) {
    return "{\"chunk\": \"7\", \"cursor\": 9, \"first_bucket\": " + std::to_string(first_bucket) +
           ", \"last_bucket\": " + std::to_string(last_bucket) + ", \"first_float\": " + std::to_string(first) +
           ", \"last_float\": " + std::to_string(last) + "}";
  };
  CHECK(!load(range(0, 16)).has_value());
  CHECK(load(range(16, 0)) == Code::kCorruption);
  CHECK(load(range(0, 16, 9, 4)) == Code::kCorruption);
  CHECK(load(range(0, 16, 0, 5000)) == Code::kCorruption);
  CHECK(!load(range(0, 1000) + ", " + range(2000, 3000)).has_value());  // beyond the vector's 40 floats
  std::mt19937_64 rng(6);
  for (int round = 0; round < 1000; ++round) {
    std::string ranges;
    for (uint64_t left = 1 + rng() % 5; left > 0; --left) {
      const auto draw = [&] { return rng() % 7 == 0 ? rng() : rng() % 60; };
      ranges += range(draw(), draw(), rng() % 4200, rng() % 4200) + (left > 1 ? ", " : "");
    }
    const auto code = load(ranges);
    CHECK(!code || *code == Code::kCorruption);
  }
}

// PROMISE: a crafted waiting.bin: pushes of other shards' rows or with too many floats | Corruption; none of them waits
void TestCraftedWaiting() {
  Shard shard(MakeShardSettings());
  SetDense(&shard);
  shard.SetGroup({1, 2, 3});
  auto batches = GroupOf(0, GroupMode::kAll);
  for (const Batch& batch : batches) Pull(&shard, batch.feasigns, true);
  Push(&shard, batches[0]);
  Push(&shard, batches[1]);
  const std::string directory = MakeDirectory("crafted");
  shard.SaveForStandby(directory, [] {});
  CHECK(!TryLoad(directory, true).has_value());
  const std::string good = ReadAll(directory + "/waiting.bin");
  // A push with one dense float, where the pserver holds 40.
  std::string few = good;
  const size_t first = 8 + 3 * 8 + 8;  // after the group and who took part: flags, length, body
  uint64_t bytes = 0;
  std::memcpy(&bytes, few.data() + first + 1, 8);
  bytes -= (kFloats - 1) * sizeof(float);
  std::memcpy(few.data() + first + 1, &bytes, 8);
  const uint32_t one = 1;
  std::memcpy(few.data() + first + 9 + 44, &one, 4);
  few.erase(first + 9 + bytes, (kFloats - 1) * sizeof(float));
  WriteFile(directory + "/waiting.bin", few);
  CHECK(TryLoad(directory, true) == Code::kCorruption);
  std::mt19937_64 rng(7);
  for (int round = 0; round < 3000; ++round) {
    std::string content = good;
    for (uint64_t flips = 1 + rng() % 3; flips > 0; --flips) {
      content[rng() % content.size()] ^= static_cast<char>(1u << rng() % 8);
    }
    if (rng() % 8 == 0) content.resize(rng() % content.size());
    WriteFile(directory + "/waiting.bin", content);
    const auto code = TryLoad(directory, true);
    CHECK(!code || *code == Code::kCorruption);
  }
  // The same file, read by the shard of other buckets.
  Shard half(MakeShardSettings(0, 2));
  const std::string other = MakeDirectory("crafted-other");
  half.SaveForStandby(other, [] {});
  WriteFile(other + "/waiting.bin", good);
  Shard standby(MakeShardSettings(0, 2));
  bool is_refused = false;
  try {
    standby.LoadFromPrimary(other);
  } catch (const Error& error) {
    is_refused = error.code() == Code::kCorruption;
  }
  CHECK(is_refused && standby.GetStats().waiting == 0);
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
  TestCursors();
  TestEras();
  TestErasUnderLoad();
  TestWrongShard();
  TestDeltas();
  TestGroupsThatChange();
  TestGroupsByIdentity();
  TestGroupsWithoutStragglers();
  TestLateGroups();
  TestOtherShardCounts(1);
  TestOtherShardCounts(3);
  TestOtherShardCounts(2);
  TestResumeIsExact();
  TestDamagedParts();
  TestCraftedDense();
  TestCraftedAhead();
  TestCraftedWaiting();
  return 0;
}
