// A standby equals its primary, bit for bit: changes are applied again in order, from the beginning or from a copy made
// midway, including waiting pushes. Also: answers held until the standby has the change.
#include "ps/standby/replica.h"

#include <chrono>
#include <thread>

#include "ps/server/service.h"
#include "tests/ps/fixture.h"
#include "util/coding.h"

namespace elasticctr::ps {
namespace {

// Records every change.
class Recorder : public Observer {
 public:
  bool IsWatching() const override { return true; }
  uint64_t OnChange(const Change& change) override {
    changes_.emplace_back(change.opcode, std::vector<uint8_t>(change.body.begin(), change.body.end()));
    return changes_.size();
  }
  // Applies those after the first `from`.
  void ReplayInto(Shard* shard, size_t from) const {
    for (size_t i = from; i < changes_.size(); ++i) shard->Replay(changes_[i].first, changes_[i].second);
  }
  size_t size() const { return changes_.size(); }

 private:
  std::vector<std::pair<Opcode, std::vector<uint8_t>>> changes_;
};

// Random operations of three trainers and a coordinator, some of them wrong.
class Life {
 public:
  explicit Life(uint64_t seed) : rng_(seed) {}

  void Live(Shard* shard, int operations) {
    for (int i = 0; i < operations; ++i) Do(shard);
  }

 private:
  void Do(Shard* shard) {
    const uint64_t trainer = 1 + rng_() % 3;
    Batch batch = Batch::Random(rng_() % 500, 400, rng_() % 4 != 0);
    batch.trainer = trainer;
    batch.chunk = 10 + trainer;
    batch.weight = static_cast<uint32_t>(rng_() % 100);
    batch.now = static_cast<uint32_t>(++time_);
    batch.encoding = static_cast<Encoding>(rng_() % 3);
    const uint64_t what = rng_() % 100;
    if (what < 30) {
      Pull(shard, batch.feasigns, true, true);
    } else if (what < 85) {
      const uint32_t cursor = shard->Cursors(std::vector<uint64_t>{batch.chunk})[0];
      batch.from = what == 84 ? cursor + 1 : cursor;
      batch.to = batch.from + 1 + static_cast<uint32_t>(rng_() % 3);
      const GroupMode modes[] = {GroupMode::kNone, GroupMode::kAll, GroupMode::kDense};
      batch.group = modes[rng_() % 3];
      if (what == 83) batch.wide[0] = NAN;
      if (what == 82) batch.kind = PushKind::kNothing;
      if (what == 81) {
        batch.kind = PushKind::kDeltas;
        batch.group = GroupMode::kNone;
      }
      if (what == 80) {
        batch.kind = PushKind::kEmpty;
        batch.group = GroupMode::kAll;
        batch.to = batch.from;
        batch.weight = 0;
      }
      try {
        Push(shard, batch);
      } catch (const CursorError&) {
      }
    } else if (what < 93) {
      std::vector<uint64_t> members;
      for (uint64_t t = 1; t <= 3; ++t) {
        if (rng_() % 3 != 0) members.push_back(t);
      }
      shard->SetGroup(members);
    } else if (what == 93) {
      shard->Decay(0.9f);
    } else if (what == 94) {
      shard->Evict({1.0f, 1.0f, 0.3f, static_cast<uint32_t>(time_ > 300 ? time_ - 300 : 0)});
    } else if (what == 95) {
      shard->ForgetChunks(5 + rng_() % 3);
    }
  }

  std::mt19937_64 rng_;
  uint64_t time_ = 0;
};

ShardSettings Hasty() {
  ShardSettings settings = MakeShardSettings(0, 1, true);
  settings.group_timeout_ms = 2;  // many groups time out
  return settings;
}

void TestReplay() {
  for (uint64_t seed = 0; seed < 3; ++seed) {
    Life life(seed);
    Recorder recorder;
    auto primary = std::make_unique<Shard>(seed == 0 ? MakeShardSettings(0, 1, true) : Hasty());
    // The copy of a fresh primary: its standby never decides itself that a group has timed out.
    auto standby = std::make_unique<Shard>(MakeShardSettings(0, 1, true));
    {
      const std::string directory = MakeDirectory("fresh");
      primary->SaveForStandby(directory, [] {});
      standby->LoadFromPrimary(directory);
    }
    primary->SetObserver(&recorder);
    SetDense(primary.get());
    life.Live(primary.get(), 1500);
    // A second standby joins midway, while pushes wait.
    Shard late(MakeShardSettings(0, 1, true));
    const std::string directory = MakeDirectory("middle");
    size_t from = 0;
    primary->SaveForStandby(directory, [&] { from = recorder.size(); });
    late.LoadFromPrimary(directory);
    life.Live(primary.get(), 1500);
    primary->SetObserver(nullptr);
    recorder.ReplayInto(standby.get(), 0);
    recorder.ReplayInto(&late, from);
    const auto expected = SavedFiles(*primary, "primary");
    CHECK(primary->GetStats().rows > 200 && recorder.size() > 1000);
    CHECK(SavedFiles(*standby, "standby") == expected);
    CHECK(SavedFiles(late, "late") == expected);
    // The standby takes over and has a standby of its own, which becomes equal again.
    Recorder second;
    const std::string again = MakeDirectory("again");
    standby->BecomePrimary();
    standby->SaveForStandby(again, [] {});
    Shard next(MakeShardSettings(0, 1, true));
    next.LoadFromPrimary(again);
    standby->SetObserver(&second);
    life.Live(standby.get(), 500);
    standby->SetObserver(nullptr);
    second.ReplayInto(&next, 0);
    CHECK(SavedFiles(*standby, "standby") == SavedFiles(next, "next"));
  }
}

const std::vector<uint8_t> kBody = {1, 2, 3};

void TestHeldAnswers() {
  ReplicaOptions options;
  options.keepalive_ms = 50;
  Replica replica(options);
  std::atomic<int> answered{0};
  const auto answer = [&] { ++answered; };
  CHECK(!replica.IsWatching());
  replica.WhenHeld(5, answer);
  CHECK(answered == 1);
  const Replica::Start start = replica.Begin();
  const uint64_t first = replica.OnChange({Opcode::kPush, kBody});
  CHECK(first == start.place + 1);
  replica.WhenHeld(first, answer);  // a joining standby delays nobody
  CHECK(answered == 2);
  std::atomic<bool> has_changes{false};
  std::string changes;
  const auto fetch = [&](uint64_t acked) {
    has_changes = false;
    replica.Fetch(start.session, acked, [&](std::string text) {
      changes = std::move(text);
      has_changes = true;
    });
    for (int i = 0; i < 500 && !has_changes; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    CHECK(has_changes);
  };
  fetch(start.place);
  CHECK(changes.size() == 8 + 16 + kBody.size() && changes[0] == 0 && DecodeFixed64(changes.data() + 8) == first);
  const uint64_t second = replica.OnChange({Opcode::kPush, kBody});
  replica.WhenHeld(second, answer);  // from now on it does
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  CHECK(answered == 2 && !replica.IsHeld(second));
  fetch(first);
  CHECK(changes[0] == 1 && answered == 2);
  fetch(second);
  CHECK(answered == 3 && replica.IsHeld(second) && changes.size() == 8);
  const uint64_t third = replica.OnChange({Opcode::kPush, kBody});
  replica.WhenHeld(third, answer);
  replica.Leave(start.session);
  CHECK(answered == 4 && replica.GetStats().drops == 1 && !replica.IsWatching());
  bool is_refused = false;
  try {
    replica.Fetch(start.session, second, [](std::string) {});
  } catch (const Error& error) {
    is_refused = error.code() == Code::kUnavailable;
  }
  CHECK(is_refused);
}

// Silent or too far behind: dropped. Held answers are released only after confirmation.
void TestDrops() {
  for (const bool is_silent : {true, false}) {
    ReplicaOptions options;
    options.timeout_ms = is_silent ? 100 : 60'000;
    options.max_bytes = is_silent ? 1u << 30 : 1000;
    options.keepalive_ms = 20;
    options.confirms_itself = false;
    Replica replica(options);
    const Replica::Start start = replica.Begin();
    std::atomic<int> fetched{0}, answered{0};
    replica.Fetch(start.session, start.place, [&](std::string) { ++fetched; });  // in sync at once
    for (int i = 0; i < 200 && fetched == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    CHECK(std::string(replica.GetStats().state) == "in_sync");
    uint64_t place = 0;
    for (int i = 0; i < 100; ++i) place = replica.OnChange({Opcode::kPush, kBody});
    replica.WhenHeld(place, [&] { ++answered; });
    for (int i = 0; i < 400 && !replica.is_dropping(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    CHECK(replica.is_dropping() && answered == 0);
    replica.WhenHeld(replica.OnChange({Opcode::kPush, kBody}), [&] { ++answered; });
    CHECK(answered == 0);
    replica.ConfirmDrop();
    CHECK(answered == 2 && !replica.IsWatching() && replica.GetStats().drops == 1);
  }
}

ServiceOptions MakeOptions(bool is_standby) {
  ServiceOptions options;
  options.net.ports = {0};
  options.net.threads = 2;
  options.shard = MakeShardSettings(0, 1, true);
  options.identity = options.digest = "job";
  options.build = "b";
  options.strategy = "async";
  options.is_standby = is_standby;
  options.scratch = MakeDirectory(is_standby ? "scratch-standby" : "scratch-primary");
  return options;
}

bool WaitFor(const std::function<bool()>& is_so) {
  for (int i = 0; i < 4000; ++i) {
    if (is_so()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

// Two services over sockets: a standby joins under load, catches up, and takes over when its primary is gone.
void TestServices() {
  auto primary = std::make_unique<Service>(MakeOptions(false));
  Service standby(MakeOptions(true));
  primary->Start();
  standby.Start();
  primary->Load("");
  SetDense(&primary->shard());
  Life life(9);
  life.Live(&primary->shard(), 300);
  bool is_refused = false;
  try {
    standby.Promote();
  } catch (const Error& error) {
    is_refused = error.code() == Code::kFailedPrecondition;
  }
  CHECK(is_refused && !standby.is_primary());
  standby.Follow("127.0.0.1:" + std::to_string(primary->ports()[0]));
  std::atomic<bool> is_over{false};
  std::thread load([&] {
    while (!is_over) life.Live(&primary->shard(), 5);
  });
  CHECK(WaitFor([&] { return standby.stats().find("\"is_caught_up\": true") != std::string::npos; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  is_over = true;
  load.join();
  const uint64_t place = primary->replica().last_place();
  CHECK(place > 0 && WaitFor([&] { return primary->replica().IsHeld(place); }));
  const auto expected = SavedFiles(primary->shard(), "primary");
  primary.reset();
  standby.Promote();
  CHECK(standby.is_primary() && standby.is_ready());
  CHECK(SavedFiles(standby.shard(), "standby") == expected);
  life.Live(&standby.shard(), 100);
}

// A standby without state serves a checkpoint when ordered to, whatever primary it was following; a pserver that serves
// nothing yet may become a standby.
void TestRolesByOrder() {
  auto first = std::make_unique<Service>(MakeOptions(false));
  Service standby(MakeOptions(true));
  first->Start();
  standby.Start();
  first->Load("");
  SetDense(&first->shard());
  Life life(11);
  life.Live(&first->shard(), 200);
  const std::string directory = MakeDirectory("roles");
  first->shard().Save(directory);
  const auto expected = SavedFiles(first->shard(), "roles-first");
  life.Live(&first->shard(), 50);
  standby.Follow("127.0.0.1:" + std::to_string(first->ports()[0]));
  CHECK(WaitFor([&] { return standby.stats().find("\"is_caught_up\": true") != std::string::npos; }));
  first.reset();
  standby.Load(directory, 3);
  CHECK(standby.is_primary() && standby.is_ready() && standby.shard().era() == 3);
  CHECK(SavedFiles(standby.shard(), "roles-standby") == expected);

  Service again(MakeOptions(false));
  again.Start();
  const std::string address = "127.0.0.1:" + std::to_string(standby.ports()[0]);
  again.Follow(address);
  CHECK(!again.is_primary());
  CHECK(WaitFor([&] { return again.stats().find("\"is_caught_up\": true") != std::string::npos; }));
  bool is_refused = false;
  try {
    standby.Follow(address);
  } catch (const Error& error) {
    is_refused = error.code() == Code::kFailedPrecondition;
  }
  CHECK(is_refused && standby.is_primary());
  again.Promote();
  CHECK(SavedFiles(again.shard(), "roles-again") == expected);
  CHECK(again.shard().era() == 3);  // it refuses what its primary refused
  // Nothing to load from: it follows the given primary, keeps trying, and can be ordered to start empty.
  Service lost(MakeOptions(true));
  lost.Start();
  lost.Follow("127.0.0.1:1");
  lost.Load("");
  CHECK(lost.is_primary() && lost.is_ready() && lost.shard().GetStats().rows == 0);
}

}  // namespace
}  // namespace elasticctr::ps

int main() {
  using namespace elasticctr::ps;
  TestReplay();
  TestHeldAnswers();
  TestDrops();
  TestServices();
  TestRolesByOrder();
  return 0;
}
