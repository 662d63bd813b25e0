// bRPC on the prediction server's port, over real sockets: pipelined requests on one connection, answers out of order,
// and shutdown with requests in flight. Run under the thread and address sanitizers.
#include <chrono>
#include <map>
#include <thread>

#include "serve/brpc/frame.h"
#include "serve/brpc/session.h"
#include "serve/service.h"
#include "serve/version/version.h"
#include "tests/check.h"
#include "tests/serve/brpc_fixture.h"
#include "util/protobuf.h"

namespace elasticctr::serve::brpc {
namespace {

void TestPipelined(size_t count) {
  Running running;
  Peer peer(running.port());
  std::thread sender([&] {
    std::string bytes;
    for (uint64_t i = 0; i < count; ++i) bytes += Ask({i + 1000}, i % 400);
    CHECK(peer.Send(bytes));
  });
  std::map<uint64_t, float> scores;
  Reply reply;
  for (size_t i = 0; i < count; ++i) {
    CHECK(peer.Receive(&reply) && reply.error == 0);
    CHECK(scores.emplace(reply.id, reply.score).second);
  }
  sender.join();
  for (uint64_t i = 0; i < count; ++i) CHECK(std::abs(scores.at(i + 1000) - ScoreOf(i % 400)) < 1e-6f);
}

void TestAnswersOvertake() {
  Running running;
  Peer peer(running.port());
  CHECK(peer.Send(Ask({1}, kSlow)));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the slow one is being looked up
  CHECK(peer.Send(Ask({2}, 5)));
  Reply first, second;
  CHECK(peer.Receive(&first) && peer.Receive(&second));
  CHECK(first.id == 2 && first.error == 0 && second.id == 1 && second.error == 0);
}

void TestModelsAndErrors() {
  Running running;
  Peer peer(running.port());
  Reply reply;
  Call call{1};
  call.model = "other";
  CHECK(peer.Send(Ask(call, 7)) && peer.Receive(&reply) && reply.error == 0 && reply.model == "other");
  call.model = "none";
  CHECK(peer.Send(Ask(call, 7)) && peer.Receive(&reply) && reply.error == 1001);
  CHECK(reply.text.find("no model 'none'") != std::string::npos);
  Call elsewhere{2, "a.b.C"};
  CHECK(peer.Send(Ask(elsewhere, 7)) && peer.Receive(&reply) && reply.id == 2 && reply.error == 1001);
  CHECK(peer.Send(Frame(MetaOf({3}), "\x0a\x7f")) && peer.Receive(&reply) && reply.id == 3 && reply.error == 1003);
}

void TestTimeIsUp() {
  Running running({}, 1);
  Peer slow(running.port()), peer(running.port());
  Call hurried{4};
  hurried.timeout_ms = 50;
  Reply reply;
  CHECK(slow.Send(Ask({5}, kSlow)));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the only worker is busy
  CHECK(peer.Send(Ask(hurried, 7)) && peer.Receive(&reply) && reply.id == 4 && reply.error == 1008);
  CHECK(peer.Send(Ask({8}, 7)) && peer.Receive(&reply) && reply.id == 8 && reply.error == 0);
}

void TestOverloadIsToldAtOnce() {
  Running running({}, 1, 50);
  Peer slow(running.port()), peer(running.port());
  CHECK(slow.Send(Ask({1}, kSlow)));
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  CHECK(peer.Send(Ask({2}, 1)));
  std::this_thread::sleep_for(std::chrono::milliseconds(120));  // it has waited too long already
  CHECK(peer.Send(Ask({3}, 1)));
  Reply reply;
  CHECK(peer.Receive(&reply) && reply.id == 3 && reply.error == 2004);
}

void TestStopAnswersWhatArrived() {
  Running running;
  Peer peer(running.port());
  std::string bytes = Ask({1}, kSlow);
  for (uint64_t i = 2; i <= 50; ++i) bytes += Ask({i}, i);
  CHECK(peer.Send(bytes));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::thread stopper([&] { running.service.Stop(10); });
  Reply reply;
  for (int i = 0; i < 50; ++i) CHECK(peer.Receive(&reply) && reply.error == 0);
  stopper.join();
  CHECK(!peer.Receive(&reply));
}

}  // namespace
}  // namespace elasticctr::serve::brpc

int main() {
  using namespace elasticctr::serve::brpc;
  TestPipelined(100);
  TestPipelined(3 * elasticctr::serve::BrpcSession::kMaxOwed);
  TestAnswersOvertake();
  TestModelsAndErrors();
  TestTimeIsUp();
  TestOverloadIsToldAtOnce();
  TestStopAnswersWhatArrived();
}
