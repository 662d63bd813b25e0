// A pserver's sockets: answers in order, pushes that wait, and orders.
#include "ps/server/service.h"

#include "net/socket.h"
#include "net/wire.h"
#include "tests/ps/fixture.h"
#include "tests/ps/service_fixture.h"
#include "util/coding.h"

namespace elasticctr::ps {
namespace {

std::string GroupBody(const std::vector<uint64_t>& members) {
  std::string body(8 + members.size() * 8, '\0');
  EncodeFixed32(body.data(), static_cast<uint32_t>(members.size()));
  std::memcpy(body.data() + 8, members.data(), members.size() * 8);
  return body;
}

void TestAttach() {
  Service service(MakeOptions());
  service.Start();
  Client client(service);
  const std::string good = R"({"role": "trainer", "id": 1, "build": "b1", "identity": "text", "strategy": "sync"})";
  const auto attach = [&](std::string text) { return client.Ask(Client::Frame(Opcode::kAttach, text)); };
  Answer answer = attach(good);
  CHECK(answer.header.status == NumberOf(Code::kUnavailable) && answer.header.detail == 10);  // not loaded yet
  service.Load("");
  answer = attach(good);
  CHECK(answer.header.status == 0 && answer.header.id == 1234);
  CHECK(answer.body.find("\"tables\": [\"wide\", \"narrow\"]") != std::string::npos);
  for (const char* part : {"b1", "text", "sync"}) {
    std::string bad = good;
    bad.replace(bad.find(part), std::strlen(part), "else");
    answer = attach(bad);
    CHECK(answer.header.status == NumberOf(Code::kFailedPrecondition) && answer.header.detail == 8);
  }
  CHECK(attach("{").header.status == NumberOf(Code::kData));
  answer = client.Ask(Client::Frame(Opcode::kCursors, "", 0, kJob + 1));
  CHECK(answer.header.status == NumberOf(Code::kFailedPrecondition) && answer.header.detail == 8);
  CHECK(client.Ask(Client::Frame(Opcode::kPing, "hello")).body == "hello");
}

void TestTokens() {
  Service service(MakeOptions("a secret"));
  service.Start();
  service.Load("");
  Client stranger(service);
  CHECK(stranger.Ask(Client::Frame(Opcode::kPing, "")).header.status == NumberOf(Code::kUnauthorized));
  CHECK(stranger.Read().is_closed);
  Client wrong(service);
  CHECK(wrong.Ask(Client::Frame(Opcode::kHello, "another one")).header.status == NumberOf(Code::kUnauthorized));
  CHECK(wrong.Read().is_closed);
  Client huge(service);
  huge.SendRaw(Client::Frame(Opcode::kPush, std::string(5000, 'x')));
  CHECK(huge.Read().header.status == NumberOf(Code::kData));
  Client good(service);
  CHECK(good.Ask(Client::Frame(Opcode::kHello, "a secret")).header.status == 0);
  CHECK(good.Ask(Client::Frame(Opcode::kPing, "x")).header.status == 0);
}

// A waiting push delays its own connection, in order, and no other.
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
  // Orders of an older coordinator are refused.
  CHECK(orders.Ask(Client::Frame(Opcode::kGroup, GroupBody({1}), 4)).header.detail == 11);
  CHECK(orders.Control("{\"op\": \"stats\"}", 4).header.detail == 11);
  CHECK(orders.Control("{\"op\": \"stats\"}", 6).header.status == 0);
  // A refusal of a wrong cursor contains the right one.
  batch.from = 4;
  batch.to = 5;
  batch.group = GroupMode::kNone;
  answer = two.Ask(Client::Frame(Opcode::kPush, batch.Body(service.shard())));
  CHECK(answer.header.status == NumberOf(Code::kFailedPrecondition) && answer.header.detail == 9);
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
        NumberOf(Code::kNotFound));
  CHECK(client.Control("{\"op\": \"load\", \"directory\": null}").header.status == 0);
  CHECK(service.shard().GetStats().rows == 0);
  CHECK(client.Control("{\"op\": \"load\", \"directory\": \"" + directory + "\"}").header.status == 0);
  CHECK(service.shard().GetStats().rows == 2 * batch.feasigns.size());
  CHECK(client.Control("{\"op\": \"load\", \"directory\": \"/nowhere\"}").header.status != 0);
  CHECK(!service.is_ready());
  CHECK(client.Control("{\"op\": \"load\", \"directory\": \"" + directory + "\"}").header.status == 0);
  CHECK(client.Control("{\"op\": \"decay\", \"rate\": 2}").header.status == NumberOf(Code::kConfig));
  CHECK(client.Control("{\"op\": \"evict\", \"min_score\": 1e9}").body ==
        "{\"evicted\": " + std::to_string(2 * batch.feasigns.size()) + "}");
  CHECK(client.Control("{\"op\": \"forget\", \"below\": \"18446744073709551615\"}").header.status == 0);
  CHECK(client.Control("{\"op\": \"forget\", \"below\": \"x\"}").header.status == NumberOf(Code::kData));
  CHECK(client.Control("{\"op\": \"dance\"}").header.status == NumberOf(Code::kData));
  CHECK(client.Control("{\"op\": \"promote\"}").header.status == 0);  // already a primary
  CHECK(client.Control("{\"op\": \"follow\", \"primary\": \"x:1\"}").header.status ==
        NumberOf(Code::kFailedPrecondition));
  CHECK(client.Control("not JSON").header.status == NumberOf(Code::kData));
  CHECK(client.Control("{\"op\": \"stop\"}").header.status == 0 && service.is_stop_asked());
}

// Work of an era before a load is refused with the current era; work of a later era may be sent again later.
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
      CHECK(old.header.status == NumberOf(Code::kFailedPrecondition) && old.header.version == 4);
      CHECK(old.header.detail == static_cast<uint16_t>(Detail::kOldEra));
    }
    const Answer early = client.Ask(Client::Frame(opcode, body, 5));
    CHECK(early.header.status == NumberOf(Code::kUnavailable));
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
  return 0;
}
