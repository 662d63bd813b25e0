// A pserver's sockets: answers in order, pushes that wait, orders, and frames of people who mean harm.
#include "ps/server/service.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "net/socket.h"
#include "net/wire.h"
#include "tests/ps/fixture.h"
#include "util/coding.h"

namespace elasticctr::ps {
namespace {

using net::wire::Header;
using net::wire::kHeaderBytes;

constexpr uint64_t kJob = 99;

ServiceOptions MakeOptions(const std::string& token = "") {
  ServiceOptions options;
  options.net.ports = {0};
  options.net.threads = 2;
  options.net.max_buffered_bytes = 64u << 20;
  options.net.limits.request_timeout_s = 1;
  options.shard = MakeShardSettings();
  options.token = token;
  options.job = kJob;
  options.identity = "text";
  options.digest = "digest";
  options.build = "b1";
  options.strategy = "sync";
  return options;
}

struct Answer {
  Header header;
  std::string body;
  bool is_closed = false;
};

class Client {
 public:
  explicit Client(const Service& service) {
    fd_ = net::Fd(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(service.ports()[0]);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    const timeval time{10, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  }
  static std::string Frame(Opcode opcode, std::string_view body, uint64_t version = 0, uint64_t job = kJob) {
    Header header;
    header.body_bytes = static_cast<uint32_t>(body.size());
    header.id = 1234;
    header.version = version;
    header.table = job;
    header.opcode = static_cast<uint8_t>(opcode);
    std::string frame(kHeaderBytes, '\0');
    net::wire::EncodeHeader(reinterpret_cast<uint8_t*>(frame.data()), header);
    return frame.append(body);
  }
  static std::string Frame(Opcode opcode, const std::vector<uint8_t>& body, uint64_t version = 0) {
    return Frame(opcode, std::string_view(reinterpret_cast<const char*>(body.data()), body.size()), version);
  }
  void SendRaw(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
  }
  Answer Read() {
    Answer answer;
    uint8_t head[kHeaderBytes];
    if (!Receive(head, sizeof head)) {
      answer.is_closed = true;
      return answer;
    }
    CHECK(net::wire::HasMagic(head));
    answer.header = net::wire::DecodeHeader(head);
    answer.body.resize(answer.header.body_bytes);
    CHECK(Receive(answer.body.data(), answer.body.size()));
    return answer;
  }
  Answer Ask(const std::string& frame) {
    SendRaw(frame);
    return Read();
  }
  Answer Control(const std::string& json, uint64_t incarnation = 0) {
    return Ask(Frame(Opcode::kControl, json, incarnation));
  }
  bool HasAnswer(int wait_ms) {
    pollfd waiting{fd_.get(), POLLIN, 0};
    char byte;
    return ::poll(&waiting, 1, wait_ms) > 0 && ::recv(fd_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
  }

 private:
  bool Receive(void* to, size_t size) {
    auto* at = static_cast<uint8_t*>(to);
    while (size != 0) {
      const ssize_t n = ::recv(fd_.get(), at, size, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      at += n;
      size -= static_cast<size_t>(n);
    }
    return true;
  }

  net::Fd fd_;
};

std::string GroupBody(const std::vector<uint64_t>& members) {
  std::string body(8 + members.size() * 8, '\0');
  EncodeFixed32(body.data(), static_cast<uint32_t>(members.size()));
  std::memcpy(body.data() + 8, members.data(), members.size() * 8);
  return body;
}

int StatusOf(Code code) { return static_cast<int>(code); }

void TestAttach() {
  Service service(MakeOptions());
  service.Start();
  Client client(service);
  const std::string good = R"({"role": "trainer", "id": 1, "build": "b1", "identity": "text", "strategy": "sync"})";
  const auto attach = [&](std::string text) { return client.Ask(Client::Frame(Opcode::kAttach, text)); };
  Answer answer = attach(good);
  CHECK(answer.header.status == StatusOf(Code::kUnavailable) && answer.header.detail == 10);  // not loaded yet
  service.Load("");
  answer = attach(good);
  CHECK(answer.header.status == 0 && answer.header.id == 1234);
  CHECK(answer.body.find("\"tables\": [\"wide\", \"narrow\"]") != std::string::npos);
  for (const char* part : {"b1", "text", "sync"}) {
    std::string bad = good;
    bad.replace(bad.find(part), std::strlen(part), "else");
    answer = attach(bad);
    CHECK(answer.header.status == StatusOf(Code::kFailedPrecondition) && answer.header.detail == 8);
  }
  CHECK(attach("{").header.status == StatusOf(Code::kData));
  answer = client.Ask(Client::Frame(Opcode::kCursors, "", 0, kJob + 1));
  CHECK(answer.header.status == StatusOf(Code::kFailedPrecondition) && answer.header.detail == 8);
  CHECK(client.Ask(Client::Frame(Opcode::kPing, "hello")).body == "hello");
}

void TestTokens() {
  Service service(MakeOptions("a secret"));
  service.Start();
  service.Load("");
  Client stranger(service);
  CHECK(stranger.Ask(Client::Frame(Opcode::kPing, "")).header.status == StatusOf(Code::kUnauthorized));
  CHECK(stranger.Read().is_closed);
  Client wrong(service);
  CHECK(wrong.Ask(Client::Frame(Opcode::kHello, "another one")).header.status == StatusOf(Code::kUnauthorized));
  CHECK(wrong.Read().is_closed);
  Client huge(service);
  huge.SendRaw(Client::Frame(Opcode::kPush, std::string(5000, 'x')));
  CHECK(huge.Read().header.status == StatusOf(Code::kData));
  Client good(service);
  CHECK(good.Ask(Client::Frame(Opcode::kHello, "a secret")).header.status == 0);
  CHECK(good.Ask(Client::Frame(Opcode::kPing, "x")).header.status == 0);
}

// A push that waits holds up its own connection, in order, and no other.
void TestOrder() {
  Service service(MakeOptions());
  service.Start();
  service.Load("");
  SetDense(&service.shard());
  Client one(service), two(service), orders(service);
  CHECK(orders.Ask(Client::Frame(Opcode::kGroup, GroupBody({1, 2}), 5)).header.status == 0);
  Batch batch = Batch::Random(1);
  batch.group = GroupMode::kAll;
  one.SendRaw(Client::Frame(Opcode::kPush, batch.Body(service.shard())) + Client::Frame(Opcode::kPing, "after"));
  CHECK(!one.HasAnswer(100));
  CHECK(two.Ask(Client::Frame(Opcode::kPing, "other")).body == "other");
  batch.trainer = 2;
  batch.chunk = 8;
  Answer answer = two.Ask(Client::Frame(Opcode::kPush, batch.Body(service.shard())));
  CHECK(answer.header.status == 0 && answer.body.size() == kPushAnswerHead && answer.body[0] == 0);
  answer = one.Read();
  CHECK(answer.header.opcode == static_cast<uint8_t>(Opcode::kPush) && answer.header.version == 1);
  CHECK(one.Read().body == "after");
  // An older coordinator is not obeyed.
  CHECK(orders.Ask(Client::Frame(Opcode::kGroup, GroupBody({1}), 4)).header.detail == 11);
  CHECK(orders.Control("{\"op\": \"stats\"}", 4).header.detail == 11);
  CHECK(orders.Control("{\"op\": \"stats\"}", 6).header.status == 0);
  // A cursor that does not fit comes with what it is.
  batch.from = 4;
  batch.to = 5;
  batch.group = GroupMode::kNone;
  answer = two.Ask(Client::Frame(Opcode::kPush, batch.Body(service.shard())));
  CHECK(answer.header.status == StatusOf(Code::kFailedPrecondition) && answer.header.detail == 9);
  CHECK(answer.header.version == 1);
}

void TestOrders() {
  Service service(MakeOptions());
  service.Start();
  service.Load("");
  SetDense(&service.shard());
  Client client(service);
  const Batch batch = Batch::Random(1);
  Pull(&service.shard(), batch.feasigns, true);
  CHECK(client.Ask(Client::Frame(Opcode::kPush, batch.Body(service.shard()))).header.status == 0);
  const std::string directory = MakeDirectory("orders");
  Answer answer = client.Control("{\"op\": \"save\", \"directory\": \"" + directory + "\"}");
  CHECK(answer.header.status == 0 && answer.body.find("\"7\": 1") != std::string::npos);
  CHECK(client.Control("{\"op\": \"save\", \"directory\": \"/nowhere/at/all\"}").header.status ==
        StatusOf(Code::kNotFound));
  CHECK(client.Control("{\"op\": \"load\", \"directory\": null}").header.status == 0);
  CHECK(service.shard().GetStats().rows == 0);
  CHECK(client.Control("{\"op\": \"load\", \"directory\": \"" + directory + "\"}").header.status == 0);
  CHECK(service.shard().GetStats().rows == 2 * batch.feasigns.size());
  CHECK(client.Control("{\"op\": \"load\", \"directory\": \"/nowhere\"}").header.status != 0);
  CHECK(!service.is_ready());
  CHECK(client.Control("{\"op\": \"load\", \"directory\": \"" + directory + "\"}").header.status == 0);
  CHECK(client.Control("{\"op\": \"decay\", \"rate\": 2}").header.status == StatusOf(Code::kConfig));
  CHECK(client.Control("{\"op\": \"evict\", \"min_score\": 1e9}").body ==
        "{\"evicted\": " + std::to_string(2 * batch.feasigns.size()) + "}");
  CHECK(client.Control("{\"op\": \"forget\", \"below\": \"18446744073709551615\"}").header.status == 0);
  CHECK(client.Control("{\"op\": \"forget\", \"below\": \"x\"}").header.status == StatusOf(Code::kData));
  CHECK(client.Control("{\"op\": \"dance\"}").header.status == StatusOf(Code::kData));
  CHECK(client.Control("{\"op\": \"promote\"}").header.status == 0);  // it is one
  CHECK(client.Control("{\"op\": \"follow\", \"primary\": \"x:1\"}").header.status ==
        StatusOf(Code::kFailedPrecondition));
  CHECK(client.Control("not JSON").header.status == StatusOf(Code::kData));
  CHECK(client.Control("{\"op\": \"stop\"}").header.status == 0 && service.is_stop_asked());
}

// Whatever comes, the process lives, others are served, and the state is changed by whole good pushes alone.
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
    CHECK(wrong.Read().header.status == StatusOf(Code::kData) && wrong.Read().is_closed);
    Client large(service);
    std::string head = Client::Frame(Opcode::kPush, "");
    EncodeFixed32(head.data() + 4, UINT32_MAX);
    CHECK(large.Ask(head).header.status == StatusOf(Code::kData) && large.Read().is_closed);
    Client hungry(service);  // more than all connections may buffer together: refused, and read over
    EncodeFixed32(head.data() + 4, 100u << 20);
    CHECK(hungry.Ask(head).header.detail == 4);
    Client half(service);  // half a frame is not waited for for ever
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
    // Bytes 16 to 23 are the batches: keep every mutated push from fitting the cursor.
    if (body.size() > 24) EncodeFixed32(body.data() + 16, 1u << 30 | static_cast<uint32_t>(rng()));
    const Opcode opcodes[] = {Opcode::kPush,    Opcode::kPull,     Opcode::kPush,      Opcode::kAttach,
                              Opcode::kCursors, Opcode::kSetDense, Opcode::kReplicate, Opcode::kControl,
                              Opcode::kGroup,   Opcode::kInsert,   Opcode(77)};
    std::string frame = Client::Frame(opcodes[rng() % std::size(opcodes)], body);
    if (rng() % 10 == 0) frame[rng() % kHeaderBytes] = static_cast<char>(rng());
    client.SendRaw(frame);
    if (rng() % 3 == 0) continue;  // and away
    if (client.HasAnswer(rng() % 8 == 0 ? 20 : 0)) client.Read();
    if (round % 100 == 0) CHECK(honest.Ask(Client::Frame(Opcode::kPing, "alive")).body == "alive");
  }
  CHECK(honest.Ask(Client::Frame(Opcode::kPing, "alive")).body == "alive");
  CHECK(Pull(&service.shard(), batch.feasigns, false) == before);
  CHECK(honest.Ask(Client::Frame(Opcode::kPush, batch.Body(service.shard()))).header.status == 0);
  CHECK(Pull(&service.shard(), batch.feasigns, false) != before);
}

// Trainers in threads, a saver, a standby that comes and goes: nothing races, nothing is lost.
// Rows that a push finds by what the pull before noted are those it would have looked up, also after they moved.
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

// What a load says is over is refused with the era that is; what is ahead of it may be asked again later.
void TestEras() {
  Service service(MakeOptions());
  service.Start();
  Client client(service);
  CHECK(client.Control(R"({"op": "load", "directory": null, "era": 4})").header.status == 0);
  CHECK(client.Control(R"({"op": "stats"})").body.find("\"era\": 4") != std::string::npos);
  const Batch batch = Batch::Random(1);
  const auto push = batch.Body(service.shard());
  Batch grouped = batch;
  grouped.group = GroupMode::kAll;
  const std::vector<uint8_t> chunk(8), dense(8 + kFloats * sizeof(float)), none(kPullHead);
  const std::vector<std::pair<Opcode, std::vector<uint8_t>>> asked = {{Opcode::kPush, push},
                                                                      {Opcode::kPush, grouped.Body(service.shard())},
                                                                      {Opcode::kPull, none},
                                                                      {Opcode::kCursors, chunk},
                                                                      {Opcode::kSetDense, dense}};
  for (const auto& [opcode, body] : asked) {
    for (const uint64_t era : {uint64_t{0}, uint64_t{3}}) {
      const Answer old = client.Ask(Client::Frame(opcode, body, era));
      CHECK(old.header.status == StatusOf(Code::kFailedPrecondition) && old.header.version == 4);
      CHECK(old.header.detail == static_cast<uint16_t>(Detail::kOldEra));
    }
    const Answer early = client.Ask(Client::Frame(opcode, body, 5));
    CHECK(early.header.status == StatusOf(Code::kUnavailable));
    CHECK(early.header.detail == static_cast<uint16_t>(Detail::kNotPrimary));
  }
  CHECK(service.shard().GetStats().old_era == 10 && service.shard().step() == 0);
  for (const auto& [opcode, body] : asked) CHECK(client.Ask(Client::Frame(opcode, body, 4)).header.status == 0);
  CHECK(service.shard().step() == 1);
  service.Stop(2.0);
}

}  // namespace
}  // namespace elasticctr::ps

int main() {
  using namespace elasticctr::ps;
  TestAttach();
  TestTokens();
  TestOrder();
  TestOrders();
  TestEras();
  TestHostileFrames();
  TestRowsFoundByPull();
  TestUnderLoad();
  return 0;
}
