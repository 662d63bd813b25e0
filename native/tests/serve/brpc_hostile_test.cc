// Hostile bRPC clients: no token, requests faster than answers, invalid frames, streams of mutated bytes. Run under the
// thread and address sanitizers.
#include <random>

#include "serve/brpc/frame.h"
#include "serve/brpc/session.h"
#include "serve/service.h"
#include "serve/version/version.h"
#include "tests/check.h"
#include "tests/serve/brpc_fixture.h"
#include "util/protobuf.h"

namespace elasticctr::serve::brpc {
namespace {

void CheckAnswers(uint16_t port, const std::string& token = {}) {
  Peer peer(port);
  Call call{9};
  call.token = token;
  Reply reply;
  CHECK(peer.Send(Ask(call, 7)) && peer.Receive(&reply));
  CHECK(reply.id == 9 && reply.error == 0 && std::abs(reply.score - ScoreOf(7)) < 1e-6f && reply.model == "m");
}

// PROMISE: bRPC requests queued faster than they are answered | their bytes are charged; beyond the share they are
// refused
void TestQueuedBytesAreCharged() {
  ServiceOptions options = Running::Options({}, 1, 20'000);
  options.net.max_buffered_bytes = 1 << 20;  // a quarter of it belongs to this address
  Service service(options);
  service.SetModels(MakeModels());
  service.Start();
  Peer slow(service.ports()[0]), peer(service.ports()[0]);
  CHECK(slow.Send(Ask({1}, kSlow)));
  std::string padding;
  Writer(&padding).Bytes(15, std::string(50'000, 'x'));
  std::string bytes;
  for (uint64_t i = 0; i < 20; ++i) bytes += Frame(MetaOf({100 + i}), padding);
  CHECK(peer.Send(bytes));
  // Beyond the share they are refused; half a message more, and the connection is closed.
  size_t taken = 0;
  Reply reply;
  for (int i = 0; i < 20 && peer.Receive(&reply); ++i) taken += reply.error != 2004;
  CHECK(taken < 10);
  // Answered requests are no longer charged.
  CHECK(slow.Receive(&reply) && reply.error == 0);
  Peer next(service.ports()[0]);
  for (int i = 0; i < 20; ++i) CHECK(next.Send(Ask({7}, 7)) && next.Receive(&reply) && reply.error == 0);
}

void TestToken() {
  Running running("a secret");
  Reply reply;
  {
    Peer peer(running.port());
    CHECK(peer.Send(Ask({1}, 7)) && peer.Receive(&reply) && reply.id == 1 && reply.error == 1004);
    CHECK(!peer.Receive(&reply));
  }
  {
    Peer peer(running.port());
    Call wrong{2};
    wrong.token = "a secreT";
    // Refused as soon as the meta has arrived; the rest never comes.
    CHECK(peer.Send(Ask(wrong, 7).substr(0, Ask(wrong, 7).size() - 3)) && peer.Receive(&reply) && reply.error == 1004);
    CHECK(!peer.Receive(&reply));
  }
  CheckAnswers(running.port(), "a secret");
  Peer peer(running.port());
  Call right{3};
  right.token = "a secret";
  CHECK(peer.Send(Ask(right, 7)) && peer.Receive(&reply) && reply.error == 0);
  CHECK(peer.Send(Ask({4}, 7)) && peer.Receive(&reply) && reply.error == 0);  // trusted by now
}

void TestHostileFrames() {
  Running running;
  Reply reply;
  auto closes = [&](const std::string& bytes) {
    Peer peer(running.port());
    CHECK(peer.Send(Ask({1}, 7)) && peer.Receive(&reply) && reply.error == 0);
    peer.Send(bytes);
    CHECK(!peer.Receive(&reply));
  };
  closes("PRPX" + std::string(100, 'x'));
  closes("GET / HTTP/1.1\r\n\r\n");
  closes(std::string("PRPC\0\0\0\x05\0\0\0\x06", 12) + "123456");                // meta larger than the whole body
  closes(std::string("PRPC\0\0\0\x05\0\0\0\x05", 12) + "\xff\xff\xff\xff\xff");  // no meta
  closes(std::string("PRPC\xff\xff\xff\xff\xff\xff\xff\xff", 12));
  closes(std::string("PRPC\0\0\1\0\0\0\0\x01", 12));  // half a message: closed after the timeout
  {
    Peer peer(running.port());
    std::string meta = MetaOf({77});
    CHECK(peer.Send(Frame(meta, std::string(1 << 20, 'x')).substr(0, 12 + meta.size())));
    CHECK(peer.Receive(&reply) && reply.id == 77 && reply.error == 1003 && !peer.Receive(&reply));
    CHECK(reply.text.find("the limit is") != std::string::npos);
  }
  // A byte at a time is fine.
  Peer peer(running.port());
  for (char byte : Ask({5}, 7)) CHECK(peer.Send({&byte, 1}));
  CHECK(peer.Receive(&reply) && reply.id == 5 && reply.error == 0);
}

void TestMutatedStreams() {
  Running running("t");
  std::mt19937_64 random(11);
  Call call{1};
  call.token = "t";
  std::string good = Ask(call, 7) + Ask({2}, 8) + Ask({3}, 9);
  for (int round = 0; round < 300; ++round) {
    std::string bytes = good;
    for (size_t i = 0; i <= random() % 6 && !bytes.empty(); ++i) {
      size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0: bytes[at] = static_cast<char>(random()); break;
        case 1: bytes.erase(at, 1 + random() % 20); break;
        case 2: bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 30)); break;
        default: bytes.resize(std::max<size_t>(at, 1)); break;
      }
    }
    Peer peer(running.port());
    peer.Send(bytes);
    if (round % 50 == 0) CheckAnswers(running.port(), "t");
  }
  CheckAnswers(running.port(), "t");
}

}  // namespace
}  // namespace elasticctr::serve::brpc

int main() {
  using namespace elasticctr::serve::brpc;
  TestQueuedBytesAreCharged();
  TestToken();
  TestHostileFrames();
  TestMutatedStreams();
}
