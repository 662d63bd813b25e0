// A pserver's sockets under load, and hostile frames.
#include <thread>

#include "net/socket.h"
#include "net/wire.h"
#include "ps/server/service.h"
#include "tests/ps/fixture.h"
#include "tests/ps/service_fixture.h"
#include "util/coding.h"

namespace elasticctr::ps {
namespace {

// Whatever arrives, the process survives, others are served, and only complete valid pushes change the state.
void TestHostileFrames() {
  Service service(MakeOptions());
  service.Start();
  service.Load("");
  SetDense(&service.shard());
  Client honest(service);
  const Batch batch = Batch::Random(1);
  Pull(&service.shard(), batch.feasigns, true);
  const auto before = Pull(&service.shard(), batch.feasigns, false);
  {
    Client other(service);
    other.SendRaw("GET / HTTP/1.1\r\n\r\n");
    CHECK(other.Read().is_closed);
    Client wrong(service);
    std::string frame = Client::Frame(Opcode::kPing, "x");
    wrong.SendRaw(frame);
    CHECK(wrong.Read().header.status == 0);
    frame[2] = 'X';
    wrong.SendRaw(frame);
    CHECK(wrong.Read().header.status == NumberOf(Code::kData) && wrong.Read().is_closed);
    Client large(service);
    std::string head = Client::Frame(Opcode::kPush, "");
    EncodeFixed32(head.data() + 4, UINT32_MAX);
    CHECK(large.Ask(head).header.status == NumberOf(Code::kData) && large.Read().is_closed);
    Client hungry(service);  // more than all connections may buffer together: refused, and skipped
    EncodeFixed32(head.data() + 4, 100u << 20);
    CHECK(hungry.Ask(head).header.detail == 4);
    Client half(service);  // the rest of half a frame is not awaited forever
    half.SendRaw(Client::Frame(Opcode::kPush, std::string(100, 'x')).substr(0, 60));
    CHECK(half.Read().is_closed);
  }
  std::mt19937_64 rng(5);
  const std::vector<uint8_t> good = batch.Body(service.shard());
  for (int round = 0; round < 1500; ++round) {
    Client client(service);
    auto body = good;
    if (rng() % 2 == 0) body.resize(rng() % body.size());
    for (size_t k = 1 + rng() % 4; k > 0 && !body.empty(); --k) {
      body[rng() % std::min<size_t>(body.size(), rng() % 2 == 0 ? 64 : body.size())] = static_cast<uint8_t>(rng());
    }
    // Bytes 16 to 23 are the batches: keep every mutated push from matching the cursor.
    if (body.size() > 24) EncodeFixed32(body.data() + 16, 1u << 30 | static_cast<uint32_t>(rng()));
    const Opcode opcodes[] = {Opcode::kPush,    Opcode::kPull,     Opcode::kPush,      Opcode::kAttach,
                              Opcode::kCursors, Opcode::kSetDense, Opcode::kReplicate, Opcode::kControl,
                              Opcode::kGroup,   Opcode::kInsert,   Opcode(77)};
    std::string frame = Client::Frame(opcodes[rng() % std::size(opcodes)], body);
    if (rng() % 10 == 0) frame[rng() % kHeaderBytes] = static_cast<char>(rng());
    client.SendRaw(frame);
    if (rng() % 3 == 0) continue;  // closes without reading
    if (client.HasAnswer(rng() % 8 == 0 ? 20 : 0)) client.Read();
    if (round % 100 == 0) CHECK(honest.Ask(Client::Frame(Opcode::kPing, "alive")).body == "alive");
  }
  CHECK(honest.Ask(Client::Frame(Opcode::kPing, "alive")).body == "alive");
  CHECK(Pull(&service.shard(), batch.feasigns, false) == before);
  CHECK(honest.Ask(Client::Frame(Opcode::kPush, batch.Body(service.shard()))).header.status == 0);
  CHECK(Pull(&service.shard(), batch.feasigns, false) != before);
}

// Trainers in threads, a saver, a standby that comes and goes: no races, and nothing is lost.
// A push finds the same rows with the numbers noted by the previous pull as by lookup, also after the rows moved.
void TestRowsFoundByPull() {
  Service service(MakeOptions());
  service.Start();
  service.Load("");
  SetDense(&service.shard());
  Shard plain(MakeShardSettings());
  SetDense(&plain);
  Client client(service);
  std::vector<Batch> batches;
  for (uint32_t k = 0; k < 30; ++k) {
    Batch batch = Batch::Random(k);
    batch.from = k;
    batch.to = k + 1;
    batches.push_back(batch);
  }
  const auto pull = [&](const Batch& batch) {
    PullRequest request;
    request.flags = kPullInserts | kPullDense;
    for (uint32_t t = 0; t < 2; ++t) {
      request.tables.push_back({t, static_cast<uint32_t>(batch.feasigns.size()), batch.feasigns.data(), nullptr});
    }
    std::vector<uint8_t> body(PullBytes(request, service.shard().shapes()));
    WritePull(request, service.shard().shapes(), body.data());
    CHECK(client.Ask(Client::Frame(Opcode::kPull, body)).header.status == 0);
    Pull(&plain, batch.feasigns, true);
  };
  EvictRule rule;
  rule.min_score = 2.0f;
  pull(batches[0]);
  for (size_t k = 0; k < batches.size(); ++k) {
    if (k + 1 < batches.size()) pull(batches[k + 1]);  // a batch ahead, as trainers do
    if (k % 10 == 9) {
      CHECK(service.shard().Evict(rule) == plain.Evict(rule));
      CHECK(service.shard().GetStats().rows > 0);
    }
    const Answer answer = client.Ask(Client::Frame(Opcode::kPush, batches[k].Body(service.shard())));
    CHECK(answer.header.status == 0 && answer.body[0] == 0);
    CHECK(Push(&plain, batches[k])->outcome == PushOutcome::kApplied);
  }
  CHECK(SavedFiles(service.shard(), "noted") == SavedFiles(plain, "plain"));
}

void TestUnderLoad() {
  Service service(MakeOptions());
  service.Start();
  service.Load("");
  SetDense(&service.shard());
  constexpr uint32_t kPushes = 40;
  std::vector<std::thread> trainers;
  for (uint64_t trainer = 1; trainer <= 3; ++trainer) {
    trainers.emplace_back([&, trainer] {
      Client client(service);
      for (uint32_t k = 0; k < kPushes; ++k) {
        Batch batch = Batch::Random(trainer * 1000 + k);
        batch.trainer = batch.chunk = trainer;
        batch.from = k;
        batch.to = k + 1;
        PullRequest pull;
        pull.flags = kPullInserts | kPullDense;
        pull.tables = {{0, static_cast<uint32_t>(batch.feasigns.size()), batch.feasigns.data(), nullptr}};
        std::vector<uint8_t> body(PullBytes(pull, service.shard().shapes()));
        WritePull(pull, service.shard().shapes(), body.data());
        client.SendRaw(Client::Frame(Opcode::kPull, body) + Client::Frame(Opcode::kPush, batch.Body(service.shard())));
        const Answer rows = client.Read(), pushed = client.Read();
        CHECK(rows.header.status == 0 && rows.body.size() >= batch.feasigns.size() * kWide * 4 + kPullAnswerHead);
        CHECK(pushed.header.status == 0 && pushed.body[0] == 0);
      }
    });
  }
  std::thread saver([&] {
    Client client(service);
    const std::string directory = MakeDirectory("load");
    for (int i = 0; i < 5; ++i) {
      CHECK(client.Control("{\"op\": \"save\", \"directory\": \"" + directory + "\"}").header.status == 0);
      CHECK(client.Control("{\"op\": \"stats\"}").header.status == 0);
    }
  });
  for (auto& trainer : trainers) trainer.join();
  saver.join();
  CHECK(service.shard().step() == 3 * kPushes);
  CHECK(service.shard().Cursors(std::vector<uint64_t>{1, 2, 3}) == (std::vector<uint32_t>{kPushes, kPushes, kPushes}));
  service.Stop(2.0);
}

}  // namespace
}  // namespace elasticctr::ps

int main() {
  using namespace elasticctr::ps;
  TestHostileFrames();
  TestRowsFoundByPull();
  TestUnderLoad();
  return 0;
}
