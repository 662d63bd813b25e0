// A trainer's client and pservers that answer: rows arrive in their places and every push is applied once.
#include "ps/client/client.h"

#include <cmath>

#include "table/remote.h"
#include "tests/check.h"
#include "tests/ps/client_fixture.h"
#include "tests/ps/fake_pserver.h"
#include "tests/table/fixture.h"
#include "util/status.h"
#include "util/thread_pool.h"

namespace elasticctr::ps {
namespace {

std::vector<float> RowsOf(Cluster& cluster, const Lookup& lookup, size_t table) {
  std::vector<float> rows;
  for (size_t i = 0; i < lookup.distinct(); ++i) {
    const uint64_t feasign = lookup.feasigns()[i];
    FakePserver& server = cluster[ShardOf(feasign, static_cast<uint32_t>(cluster.servers.size()))];
    std::lock_guard lock(server.mutex);
    for (const float value : server.Row(table, feasign)) rows.push_back(value);
  }
  return rows;
}

void CheckPullAndPush(uint32_t shards, Encoding encoding) {
  Cluster cluster(shards);
  ClientOptions options = cluster.Options();
  options.row_encoding = options.gradient_encoding = encoding;
  options.dense_gradient_encoding = encoding == Encoding::kInt8 ? Encoding::kBf16 : encoding;
  Client client(options);
  const float tolerance = encoding == Encoding::kFp32 ? 0.0f : encoding == Encoding::kFp16 ? 2e-3f : 2e-2f;
  for (uint32_t step = 0; step < 4; ++step) {
    const Batch batch(step, step == 0 ? 1 : 3);
    const auto fetch = client.StartPull(batch.lookups(), true, false);
    for (size_t t = 0; t < 2; ++t) {
      const auto rows = RowsOf(cluster, batch[t], t);
      auto wanted = Flat(), got = Flat();
      PoolRows(batch[t], TheLayout(), rows.data(), kDim + 1, {MakeTarget(&wanted, kSamples)});
      fetch->Pool(t, TheLayout(), {MakeTarget(&got, kSamples)});
      for (size_t i = 0; i < got.size(); ++i) CHECK(std::abs(got[i] - wanted[i]) <= 6 * tolerance);
      const auto fetched = fetch->Rows(t);
      CHECK(fetched.size() == rows.size());
      for (size_t i = 0; i < rows.size(); ++i) CHECK(std::abs(fetched[i] - rows[i]) <= tolerance);
    }
    auto flat = Flat();
    for (size_t i = 0; i < flat.size(); ++i) flat[i] = 0.01f * static_cast<float>(i % 9) - 0.03f;
    const auto before = RowsOf(cluster, batch.first, 0);
    CHECK(PushOne(client, HeadOf(9, step, step + 1), batch, &flat) == step + 1);
    client.WaitPushes(0, 3000);
    SummedGradients sums;
    SumGradients(batch.first, TheLayout(), kDim + 1, {MakeTarget(&flat, kSamples)}, {}, &sums);
    const auto after = RowsOf(cluster, batch.first, 0);
    for (size_t i = 0; i < after.size(); ++i) {
      CHECK(std::abs(after[i] - (before[i] - sums.gradients[i])) <= 4 * tolerance);
    }
  }
  std::map<uint64_t, uint64_t> occurrences;
  for (uint32_t s = 0; s < shards; ++s) {
    CHECK(cluster[s].misplaced == 0);
    for (const auto& [feasign, count] : cluster[s].occurrences) occurrences[feasign] += count;
  }
  std::map<uint64_t, uint64_t> wanted;
  for (uint32_t step = 0; step < 4; ++step) {
    const Batch batch(step, step == 0 ? 1 : 3);
    for (size_t i = 0; i < batch.second.distinct(); ++i) {
      wanted[batch.second.feasigns()[i]] += batch.second.starts()[i + 1] - batch.second.starts()[i];
    }
  }
  CHECK(occurrences == wanted);
  const auto cursors = client.Cursors(std::vector<uint64_t>{9, 10});
  CHECK(cursors.size() == shards && cursors[0][0] == 4 && cursors[0][1] == 0);
  CHECK(client.stats().pulls == 4 && client.stats().pushes == 4 && client.stats().resent == 0);
}

void CheckDense() {
  Cluster cluster(3);
  Client client(cluster.Options());
  std::vector<float> values(kDense), got(kDense);
  for (size_t i = 0; i < kDense; ++i) values[i] = static_cast<float>(i);
  CHECK(client.SetDense(values));
  CHECK(!client.SetDense(got));
  CHECK(client.PullDense(got) == 3);
  CHECK(got == values);
  const Batch batch(1);
  auto flat = Flat(0.5f);
  PushHead head = HeadOf(1, 0, 1);
  head.wants_dense = true;
  PushOne(client, head, batch, &flat, std::vector<float>(kDense, 0.5f));
  client.WaitPushes(0, 3000);
  CHECK(client.CopyDense(got) == 6);  // came with the answers
  for (size_t i = 0; i < kDense; ++i) CHECK(got[i] == values[i] - 0.5f);
  const auto fetch = client.StartPull(batch.lookups(), true, true);
  CHECK(fetch->dense_version() == 6);
  // A pserver that was reset counts from the start again.
  cluster[1].SetDense(std::vector<float>(32, 7.0f));
  client.Drop();
  CHECK(client.PullDense(got) == 7);
  CHECK(got[40] == 7.0f && got[0] == -0.5f);
}

void CheckCursors() {
  Cluster cluster(2);
  Client client(cluster.Options());
  const Batch batch(1);
  auto flat = Flat(0.25f);
  cluster[0].cursors[4] = 6;
  cluster[1].cursors[4] = 4;
  client.SetCursors(4, std::vector<uint32_t>{6, 4});
  CHECK(CodeOf([&] { PushOne(client, HeadOf(4, 4, 8), batch, &flat); }) == Code::kFailedPrecondition);
  PushOne(client, HeadOf(4, 4, 6), batch, &flat);
  PushOne(client, HeadOf(4, 6, 7), batch, &flat);
  client.WaitPushes(0, 3000);
  CHECK(cluster[0].applied.size() == 1 && cluster[1].applied.size() == 2);
  CHECK(client.stats().applied_before == 0);
  // At the wrong cursor: refused again and again until dropped.
  PushOne(client, HeadOf(4, 9, 10), batch, &flat);
  for (int i = 0; i < 2; ++i) {
    try {
      client.WaitPushes(0, 3000);
      CHECK(false);
    } catch (const CursorError& error) {
      CHECK(error.code() == Code::kFailedPrecondition && error.chunk() == 4 && error.cursor() == 7);
      CHECK(error.shard() < 2);
      CHECK(std::string(error.what()).find("pserver") != std::string::npos);
    }
  }
  client.Drop();
  client.WaitPushes(0, 100);
  PushOne(client, HeadOf(4, 7, 8), batch, &flat);
  client.WaitPushes(0, 3000);
  CHECK(cluster[0].cursors[4] == 8 && cluster[1].cursors[4] == 8);
}

// Pushes keep the era in which they were made, also when they are sent again; SetEra applies to later ones.
void CheckEras() {
  Cluster cluster(2);
  Client client(cluster.Options());
  const Batch batch(1);
  auto flat = Flat(0.25f);
  cluster[0].Stop();
  PushOne(client, HeadOf(4, 0, 1), batch, &flat);
  client.SetEra(2);
  for (uint32_t s = 0; s < 2; ++s) {
    std::lock_guard lock(cluster[s].mutex);
    cluster[s].era = 2;
  }
  cluster[0].Restart();
  for (int i = 0; i < 2; ++i) {
    try {
      client.WaitPushes(0, 3000);
      CHECK(false);
    } catch (const EraError& error) {
      CHECK(error.code() == Code::kFailedPrecondition && error.era() == 2);
      CHECK(std::string(error.what()).find("pserver") != std::string::npos);
    }
  }
  client.Drop();
  {
    std::lock_guard lock(cluster[0].mutex);
    CHECK(cluster[0].applied.empty());
  }
  PushOne(client, HeadOf(4, 0, 1), batch, &flat);
  client.StartPull(batch.lookups(), true, false)->Rows(0);
  client.SetEra(1);
  bool is_refused = false;
  try {
    client.StartPull(batch.lookups(), true, false)->Rows(0);
  } catch (const EraError& error) {
    is_refused = error.era() == 2;
  }
  CHECK(is_refused);
  // A request of a later era is sent again until the pserver is in that era too.
  client.SetEra(3);
  const auto fetch = client.StartPull(batch.lookups(), true, false);
  CHECK(!fetch->Wait(50));
  for (uint32_t s = 0; s < 2; ++s) {
    std::lock_guard lock(cluster[s].mutex);
    cluster[s].era = 3;
  }
  CHECK(fetch->Rows(1).size() == batch.second.distinct() * (kDim + 1));
}

void CheckDrop() {
  Cluster cluster(2);
  Client client(cluster.Options());
  cluster[0].Stop();
  std::vector<Batch> batches;
  for (uint64_t i = 0; i < 3; ++i) batches.emplace_back(i);
  auto flat = Flat(0.25f);
  for (uint32_t i = 0; i < 3; ++i) PushOne(client, HeadOf(3, i, i + 1), batches[i], &flat);
  client.Drop();
  CHECK(client.outstanding() == 0);
  cluster[0].Restart();
  const auto cursors = client.Cursors(std::vector<uint64_t>{3});
  CHECK(cursors[0][0] == 0 && cluster[0].applied.empty());
}

// PROMISE: pservers are restored from a checkpoint with different cursors | a synchronous trainer takes part on all of
// them in every step, so that no two trainers wait for each other on different pservers
void CheckGroupReachesAll() {
  Cluster cluster(2);
  Client client(cluster.Options());
  cluster[0].cursors[5] = 2;
  cluster[1].cursors[5] = 1;
  const Batch batch(1);
  auto flat = Flat(0.25f);
  client.SetCursors(5, std::vector<uint32_t>{2, 1});
  PushHead head = HeadOf(5, 1, 2);
  head.group = GroupMode::kAll;
  PushOne(client, head, batch, &flat);
  head.from = 2;
  head.to = 3;
  PushOne(client, head, batch, &flat);
  client.WaitPushes(0, 3000);
  for (uint32_t s = 0; s < 2; ++s) CHECK(cluster[s].applied.size() == 2 && cluster[s].cursors[5] == 3);
  const auto& empty = cluster[0].applied[0];
  CHECK(empty.kind == PushKind::kEmpty && empty.chunk != 0 && empty.from == 0 && empty.to == 0);
  CHECK(cluster[1].applied[0].kind == PushKind::kGradients && cluster[1].applied[0].from == 1);
  // Without a group only pservers that lack the batches receive them.
  client.SetCursors(6, std::vector<uint32_t>{2, 1});
  cluster[0].cursors[6] = 2;
  cluster[1].cursors[6] = 1;
  PushOne(client, HeadOf(6, 1, 2), batch, &flat);
  client.WaitPushes(0, 3000);
  CHECK(cluster[0].applied.size() == 2 && cluster[1].applied.size() == 3);
}

void CheckNotFinite() {
  Cluster cluster(2);
  Client client(cluster.Options());
  const Batch batch(1);
  auto flat = Flat(std::nanf(""));
  PushOne(client, HeadOf(1, 0, 1), batch, &flat);
  flat = Flat(1.0f);
  std::vector<float> dense(kDense, 1.0f);
  dense[99] = INFINITY;
  PushOne(client, HeadOf(1, 1, 2), batch, &flat, dense);
  PushHead empty = HeadOf(0, 0, 0);
  empty.kind = PushKind::kEmpty;
  client.Push(empty, {}, {});
  client.WaitPushes(0, 3000);
  for (uint32_t s = 0; s < 2; ++s) {
    CHECK(cluster[s].applied.size() == 3 && cluster[s].cursors[1] == 2);
    CHECK(cluster[s].applied[0].kind == PushKind::kNothing && cluster[s].applied[1].kind == PushKind::kNothing);
    CHECK(cluster[s].applied[2].kind == PushKind::kEmpty);
  }
  CHECK(client.stats().not_finite == 2);
}

void CheckControl() {
  Cluster cluster(2);
  Client client(cluster.Options());
  CHECK(client.Control(1, "{\"op\": \"stats\"}", 1000) == "{\"op\": \"stats\"}");
  CHECK(CodeOf([&] { client.Control(2, "{}", 1000); }) == Code::kFailedPrecondition);
  cluster[0].before = [](Opcode opcode, FakePserver::Answer* answer) {
    if (opcode == Opcode::kControl) *answer = {12, 0, 0, "no such directory", false};
  };
  std::string message;
  CHECK(CodeOf([&] { client.Control(0, "{}", 1000); }, &message) == Code::kNotFound);
  CHECK(message.find("pserver 0") != std::string::npos && message.find("no such directory") != std::string::npos);
}

}  // namespace
}  // namespace elasticctr::ps

int main() {
  using namespace elasticctr;
  using namespace elasticctr::ps;
  ThreadPool::SetDefaultThreads(2);
  for (const uint32_t shards : {1u, 2u, 5u}) {
    for (const Encoding encoding : {Encoding::kFp32, Encoding::kFp16, Encoding::kInt8, Encoding::kBf16}) {
      CheckPullAndPush(shards, encoding);
    }
  }
  CheckDense();
  CheckCursors();
  CheckEras();
  CheckDrop();
  CheckNotFinite();
  CheckGroupReachesAll();
  CheckControl();
  return 0;
}
