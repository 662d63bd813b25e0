// A trainer's client and pservers that hang up, restart, send invalid bytes or stay silent: every push is applied once,
// waits end, and no byte from a server does harm.
#include <chrono>

#include "ps/client/client.h"
#include "table/remote.h"
#include "tests/check.h"
#include "tests/ps/client_fixture.h"
#include "tests/ps/fake_pserver.h"
#include "tests/table/fixture.h"
#include "util/status.h"
#include "util/thread_pool.h"

namespace elasticctr::ps {
namespace {

// Whether or not the push was applied when the connection broke, it counts once.
void CheckHangUp(bool is_applied) {
  Cluster cluster(2);
  Client client(cluster.Options());
  int left = 3;
  const auto hang_up = [&left](Opcode opcode, FakePserver::Answer* answer) {
    if (opcode == Opcode::kPush && left > 0) answer->hang_up = --left >= 0;
  };
  {
    std::lock_guard lock(cluster[1].mutex);
    (is_applied ? cluster[1].after : cluster[1].before) = hang_up;
  }
  std::vector<Batch> batches;
  for (uint64_t i = 0; i < 6; ++i) batches.emplace_back(i);
  auto flat = Flat(0.25f);
  for (uint32_t i = 0; i < 6; ++i) PushOne(client, HeadOf(3, i, i + 1), batches[i], &flat);
  client.WaitPushes(0, 5000);
  for (uint32_t s = 0; s < 2; ++s) {
    CHECK(cluster[s].applied.size() == 6);
    for (uint32_t i = 0; i < 6; ++i) CHECK(cluster[s].applied[i].from == i && cluster[s].applied[i].to == i + 1);
  }
  const ClientStats stats = client.stats();
  CHECK(stats.reconnects == 3 && stats.resent >= 3);
  CHECK((stats.applied_before > 0) == is_applied);
}

void CheckRestart() {
  Cluster cluster(2);
  Client client(cluster.Options(8000));
  std::vector<Batch> batches;
  for (uint64_t i = 0; i < 4; ++i) batches.emplace_back(i);
  auto flat = Flat(0.25f);
  PushOne(client, HeadOf(3, 0, 1), batches[0], &flat);
  client.WaitPushes(0, 3000);
  cluster[0].Stop();
  for (uint32_t i = 1; i < 4; ++i) PushOne(client, HeadOf(3, i, i + 1), batches[i], &flat);
  std::string message;
  CHECK(CodeOf([&] { client.WaitPushes(0, 300); }, &message) == Code::kDeadlineExceeded);
  CHECK(message.find("pserver 0 (" + cluster[0].address() + ")") != std::string::npos);
  CHECK(client.outstanding() == 3 && !client.links()[0].is_ready && client.links()[1].is_ready);
  const auto fetch = client.StartPull(batches[0].lookups(), false, false);
  CHECK(!fetch->Wait(50));
  cluster[0].Restart();
  client.WaitPushes(0, 5000);
  CHECK(cluster[0].applied.size() == 4 && cluster[1].applied.size() == 4);
  auto got = Flat();
  fetch->Pool(0, TheLayout(), {MakeTarget(&got, kSamples)});
}

void CheckSetAddress() {
  Cluster cluster(2), standby(2);
  Client client(cluster.Options());
  std::vector<Batch> batches;
  for (uint64_t i = 0; i < 2; ++i) batches.emplace_back(i);
  auto flat = Flat(0.25f);
  PushOne(client, HeadOf(3, 0, 1), batches[0], &flat);
  client.WaitPushes(0, 3000);
  standby[1].cursors[3] = 1;
  cluster[1].Stop();
  PushOne(client, HeadOf(3, 1, 2), batches[1], &flat);
  client.SetAddress(1, standby[1].address(), 2);
  client.WaitPushes(0, 3000);
  CHECK(standby[1].applied.size() == 1 && standby[1].applied[0].from == 1);
  CHECK(cluster[0].applied.size() == 2);
  CHECK(CodeOf([&] { client.SetAddress(2, standby[1].address(), 2); }) == Code::kFailedPrecondition);
  CHECK(CodeOf([&] { client.SetAddress(1, "nonsense", 2); }) == Code::kConfig);
}

// A pserver that is not ready yet is asked again until it is.
void CheckNotReady() {
  Cluster cluster(1);
  int left = 4;
  cluster[0].before = [&left](Opcode opcode, FakePserver::Answer* answer) {
    if ((opcode == Opcode::kPull || opcode == Opcode::kPush) && left-- > 0) *answer = {17, 10, 0, "not loaded", false};
  };
  Client client(cluster.Options());
  const Batch batch(1);
  auto flat = Flat(1.0f);
  PushOne(client, HeadOf(1, 0, 1), batch, &flat);
  const auto fetch = client.StartPull(batch.lookups(), true, false);
  fetch->Pool(0, TheLayout(), {MakeTarget(&flat, kSamples)});
  client.WaitPushes(0, 3000);
  CHECK(cluster[0].applied.size() == 1);
}

void CheckRefusals() {
  Cluster cluster(2);
  cluster[1].token = "secret";
  std::string message;
  CHECK(CodeOf([&] { Client client(cluster.Options()); }, &message) == Code::kUnauthorized);
  CHECK(message.find("pserver 1 (" + cluster[1].address() + ")") != std::string::npos);
  cluster[1].token = "";
  ClientOptions swapped = cluster.Options();
  std::swap(swapped.addresses[0], swapped.addresses[1]);
  CHECK(CodeOf([&] { Client client(swapped); }, &message) == Code::kFailedPrecondition);
  CHECK(message.find(" of 2, not ") != std::string::npos);
  ClientOptions other = cluster.Options();
  other.dense_floats = 3;
  CHECK(CodeOf([&] { Client client(other); }) == Code::kFailedPrecondition);
  cluster[0].before = [](Opcode opcode, FakePserver::Answer* answer) {
    if (opcode == Opcode::kAttach) *answer = {15, 8, 0, "another job", false};
  };
  CHECK(CodeOf([&] { Client client(cluster.Options()); }, &message) == Code::kFailedPrecondition);
  CHECK(message.find("another job") != std::string::npos);
  cluster[0].before = nullptr;
  ClientOptions none = cluster.Options(400);
  cluster[1].Stop();
  CHECK(CodeOf([&] { Client client(none); }, &message) == Code::kUnavailable);
  CHECK(message.find("pserver 1") != std::string::npos && message.find("refused") != std::string::npos);
  none.addresses.clear();
  CHECK(CodeOf([&] { Client client(none); }) == Code::kConfig);
}

void CheckSilence() {
  Cluster cluster(1);
  std::atomic<bool> is_silent{false};
  cluster[0].before = [&](Opcode opcode, FakePserver::Answer*) {
    while (is_silent && opcode == Opcode::kPull) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
  Client client(cluster.Options(300));
  is_silent = true;
  const Batch batch(1);
  const auto started = std::chrono::steady_clock::now();
  const auto fetch = client.StartPull(batch.lookups(), true, false);
  CHECK(CodeOf([&] { fetch->Rows(0); }) == Code::kDeadlineExceeded);
  CHECK(std::chrono::steady_clock::now() - started < std::chrono::seconds(60));
  is_silent = false;
  const auto again = client.StartPull(batch.lookups(), true, false);
  CHECK(again->Rows(1).size() == batch.second.distinct() * (kDim + 1));
}

// Answers with flipped, missing and added bytes: the client reports an error or an answer, and always in finite time.
void CheckHostileBytes(uint64_t seed) {
  Cluster cluster(2);
  std::mt19937_64 rng(seed);
  std::mutex rng_mutex;
  for (uint32_t s = 0; s < 2; ++s) {
    cluster[s].garble = [&](std::string* bytes) {
      std::lock_guard lock(rng_mutex);
      if (rng() % 3 != 0) return;
      switch (rng() % 4) {
        case 0: bytes->resize(rng() % (bytes->size() + 1)); break;
        case 1: bytes->append(rng() % 100, static_cast<char>(rng())); break;
        default:
          for (int i = 0; i < 3; ++i) (*bytes)[rng() % std::min<size_t>(bytes->size(), 80)] = static_cast<char>(rng());
      }
    };
  }
  const Batch batch(1);
  auto flat = Flat(0.5f);
  for (int round = 0; round < 6; ++round) {
    try {
      Client client(cluster.Options(60));
      for (uint32_t i = 0; i < 5; ++i) {
        CodeOf([&] {
          const auto fetch = client.StartPull(batch.lookups(), true, true);
          PushOne(client, HeadOf(i % 3, i, i + 1), batch, &flat, std::vector<float>(kDense, 1.0f));
          fetch->Rows(0);
        });
        CodeOf([&] { client.WaitPushes(2, 50); });
        CodeOf([&] { client.Cursors(std::vector<uint64_t>{1, 2}); });
      }
    } catch (const Error&) {
    }
  }
}

// For the thread sanitizer: two threads pull and push while addresses are set and statistics read.
void CheckThreads() {
  Cluster cluster(3);
  Client client(cluster.Options(10'000));
  std::vector<std::thread> threads;
  for (uint64_t n = 0; n < 2; ++n) {
    threads.emplace_back([&, n] {
      auto flat = Flat(0.01f);
      for (uint32_t i = 0; i < 12; ++i) {
        const Batch batch(n * 100 + i);
        const auto fetch = client.StartPull(batch.lookups(), true, true);
        fetch->Pool(0, TheLayout(), {MakeTarget(&flat, kSamples)});
        PushOne(client, HeadOf(n, i, i + 1), batch, &flat, std::vector<float>(kDense, 1.0f));
        client.WaitPushes(4, 10'000);
      }
    });
  }
  for (int i = 0; i < 10; ++i) {
    client.SetAddress(i % 3, cluster[static_cast<size_t>(i % 3)].address(), static_cast<uint64_t>(i));
    client.stats();
    client.links();
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
  }
  for (std::thread& thread : threads) thread.join();
  client.WaitPushes(0, 10'000);
  for (uint32_t s = 0; s < 3; ++s) CHECK(cluster[s].cursors[0] == 12 && cluster[s].cursors[1] == 12);
}

}  // namespace
}  // namespace elasticctr::ps

int main() {
  using namespace elasticctr;
  using namespace elasticctr::ps;
  ThreadPool::SetDefaultThreads(2);
  CheckHangUp(false);
  CheckHangUp(true);
  CheckRestart();
  CheckSetAddress();
  CheckNotReady();
  CheckRefusals();
  CheckSilence();
  for (uint64_t seed = 0; seed < 4; ++seed) CheckHostileBytes(seed);
  CheckThreads();
  return 0;
}
