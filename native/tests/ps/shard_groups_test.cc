// Groups of synchronous trainers: members that join, leave, repeat pushes or fall behind.
#include <chrono>
#include <thread>

#include "ps/shard/cursor_error.h"
#include "ps/shard/dense_file.h"
#include "tests/ps/fixture.h"
#include "util/crc32c.h"
#include "util/status.h"

namespace elasticctr::ps {
namespace {

void TestGroupsThatChange() {
  Shard shard(MakeShardSettings());
  SetDense(&shard);
  shard.SetGroup({1, 2, 3});
  auto batches = GroupOf(0, GroupMode::kAll);
  for (const Batch& batch : batches) Pull(&shard, batch.feasigns, true);
  const auto first = Push(&shard, batches[0]), second = Push(&shard, batches[1]);
  CHECK(!first->is_over() && shard.GetStats().waiting == 2);
  // A missing member leaves: the step is taken with the pushes present, including one of a member that left after
  // sending.
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
  // One has work: its step is a step of its own.
  const auto working = Push(&shard, GroupOf(1, GroupMode::kAll)[0]);
  CHECK(!working->is_over());
  ++empty.chunk;  // the number of an empty push
  Push(&shard, empty);
  CHECK(working->outcome == PushOutcome::kApplied && shard.step() == 3 && DenseOf(shard) != dense);
  // Two hold the same chunk and both send its next batch: it counts once.
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

// PROMISE: an answer is lost and a synchronous trainer sends its push again | the push is in exactly one step of the
// group: identity decides, not the number of pushes
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
  // Both are sent again. Neither takes part in the next step of the others.
  const auto check_again = [&](Shard* at) {
    CHECK(Push(at, batches[0])->outcome == PushOutcome::kBefore);
    CHECK(Push(at, EmptyOf(2, 5))->outcome == PushOutcome::kBefore);
    CHECK(at->GetStats().waiting == 0);
  };
  check_again(&shard);
  // Nor on a standby that started after the step.
  const std::string directory = MakeDirectory("taken-part");
  shard.SaveForStandby(directory, [] {});
  Shard standby(MakeShardSettings());
  standby.LoadFromPrimary(directory);
  standby.BecomePrimary();
  check_again(&standby);
  // A batch that another trainer's push brought: the member is still in one step.
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

// PROMISE: a synchronous trainer that was given up wakes up and sends batches that others sent since | it is answered
// at once, because no step of the group includes it; nothing is applied twice and no member waits for it
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
    // Once it is a member again, it takes part in a step like all others, whatever it sends.
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

}  // namespace
}  // namespace elasticctr::ps

int main() {
  using namespace elasticctr::ps;
  TestGroupsThatChange();
  TestGroupsByIdentity();
  TestGroupsWithoutStragglers();
  TestLateGroups();
  return 0;
}
