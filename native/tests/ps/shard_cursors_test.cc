// The cursors and eras of a shard: a push counts once, and work from before a load changes nothing after it.
#include <atomic>
#include <chrono>
#include <limits>
#include <thread>

#include "ps/shard/cursor_error.h"
#include "ps/shard/dense_file.h"
#include "tests/ps/fixture.h"
#include "util/crc32c.h"
#include "util/status.h"

namespace elasticctr::ps {
namespace {

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

// Work from before a load changes nothing after it, even with a matching cursor; work of a later era has to wait.
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

// Pushes of one era race with loads of the next: everything applied belongs to the shard's era.
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

}  // namespace
}  // namespace elasticctr::ps

int main() {
  using namespace elasticctr::ps;
  TestCursors();
  TestEras();
  TestErasUnderLoad();
  return 0;
}
