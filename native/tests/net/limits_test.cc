// Limits on what one client may take from a server, over real sockets: connections of its address, bytes buffered for
// it, places it does not use. Other clients are served throughout. Run under the thread and address sanitizers.
//
// PROMISE: one address opens connections without end | it is limited to its share; all others are served
// PROMISE: one client sends requests and never reads the answers | it is limited to its share of the buffers; all
// others are answered
// PROMISE: silent connections take every place | idle ones are closed for new clients
// PROMISE: many clients send large requests at once | all waiting small requests are answered between two large ones
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "net/loop/server.h"
#include "tests/check.h"

using namespace elasticctr::net;

namespace {

constexpr size_t kBigBytes = 256 * 1024;
constexpr uint64_t kBudget = 64u << 20;
constexpr size_t kLargeBytes = 300 * 1024;  // of a request that starts with 'c'

// Small requests sent and answered; large requests answered in all, and the most in a row while a small one waited.
std::atomic<int> small_sent{0}, small_answered{0}, large_answered{0}, large_in_a_row{0}, most_in_a_row{0};

// 'a' is answered with one byte, 'b' with many, or with '-' when there is no room for them. 'c' takes a long time.
class LetterSession : public Session {
 public:
  Step Consume(const uint8_t* data, size_t size, uint64_t, Buffer* out) override {
    Step step;
    while (step.consumed < size) {
      const char got = static_cast<char>(data[step.consumed]);
      if (got == 'c') {
        step.need = kLargeBytes;
        if (size - step.consumed < kLargeBytes) return step;
        step.consumed += kLargeBytes;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        ++large_answered;
        if (small_sent > small_answered) ++large_in_a_row;
        most_in_a_row = std::max<int>(most_in_a_row, large_in_a_row);
        out->Append("c");
        continue;
      }
      ++step.consumed;
      if (got == 'b' && account().HasRoomFor(kBigBytes)) {
        out->Append(std::string(kBigBytes, 'b'));
        step.next = Next::kFlush;
        return step;
      }
      if (got == 'a') {
        ++small_answered;
        large_in_a_row = 0;
      }
      out->Append(got == 'b' ? "-" : "a");
    }
    return step;
  }
};

class Letters : public Application {
 public:
  std::unique_ptr<Session> Open(Protocol, ConnectionId, int) override { return std::make_unique<LetterSession>(); }
  void OnWake(size_t) override {}
  void OnAnswered(size_t, uint64_t) override {}
  uint32_t silent_limit_s() const override { return 0; }
};

// Connects from an address of its own: all of 127.0.0.0/8 is this machine.
class Caller {
 public:
  Caller(uint16_t port, uint8_t host) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in from{};
    from.sin_family = AF_INET;
    from.sin_addr.s_addr = htonl(0x7F000000u | host);
    CHECK(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&from), sizeof from) == 0);
    int room = 4096;
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    sockaddr_in to = from;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
    Settle();
  }
  explicit Caller(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    path.copy(to.sun_path, sizeof to.sun_path - 1);
    CHECK(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
    Settle();
  }
  void Send(const std::string& bytes) { ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  // '\0': the connection was closed.
  char Receive() {
    char got = '\0';
    return ::recv(fd_.get(), &got, 1, 0) == 1 ? got : '\0';
  }
  // The answer to one 'a'.
  char Ask() {
    Send("a");
    return Receive();
  }

 private:
  void Settle() {
    timeval limit{60, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  Fd fd_;
};

template <typename Condition>
void WaitFor(Condition&& condition) {
  bool holds = condition();
  for (int i = 0; i < 60'000 && !holds; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    holds = condition();
  }
  CHECK(holds);
}

struct Running {
  explicit Running(ServerOptions options) : server((options.ports = {0}, options), &letters) { server.Start(); }
  ~Running() { server.Stop(0); }
  uint16_t port() const { return server.ports()[0]; }
  Letters letters;
  Server server;
};

void TestConnectionsOfOneAddress() {
  ServerOptions options;
  options.max_connections = 100;
  options.max_connections_per_address = 3;
  options.unix_path = "/tmp/net_limits_test." + std::to_string(::getpid());
  Running running(options);
  std::vector<std::unique_ptr<Caller>> greedy;
  for (int i = 0; i < 3; ++i) {
    greedy.push_back(std::make_unique<Caller>(running.port(), 2));
    CHECK(greedy.back()->Ask() == 'a');
  }
  for (int i = 0; i < 50; ++i) CHECK(Caller(running.port(), 2).Ask() == '\0');
  CHECK(running.server.stats().refused.load() == 50);
  // Another address is not affected, and a Unix socket has none.
  CHECK(Caller(running.port(), 3).Ask() == 'a');
  std::vector<std::unique_ptr<Caller>> local;
  for (int i = 0; i < 5; ++i) {
    local.push_back(std::make_unique<Caller>(options.unix_path));
    CHECK(local.back()->Ask() == 'a');
  }
  // A place that was freed can be taken again.
  greedy.pop_back();
  WaitFor([&] { return Caller(running.port(), 2).Ask() == 'a'; });
}

void TestUnreadAnswersOfOneAddress() {
  ServerOptions options;
  options.max_buffered_bytes = kBudget;
  Running running(options);
  std::vector<std::unique_ptr<Caller>> greedy;
  for (int i = 0; i < 400; ++i) {
    greedy.push_back(std::make_unique<Caller>(running.port(), 2));
    greedy.back()->Send(std::string(100, 'b'));
  }
  // Their share is a quarter, plus what each was just given when it reached the limit.
  WaitFor([&] { return running.server.budget().used() > kBudget / 8; });
  Caller honest(running.port(), 3);
  for (int i = 0; i < 100; ++i) {
    CHECK(honest.Ask() == 'a');
    CHECK(running.server.budget().used() <= kBudget / 2);
  }
  honest.Send("b");
  char first = honest.Ask();
  CHECK(first == 'b');
  greedy.clear();
  WaitFor([&] { return running.server.budget().used() < kBudget / 64; });
}

void TestIdleOnesGiveWay() {
  ServerOptions options;
  options.max_connections = 4;
  options.limits.crowded_idle_s = 1;
  Running running(options);
  std::vector<std::unique_ptr<Caller>> idle;
  for (uint8_t i = 0; i < 4; ++i) {
    idle.push_back(std::make_unique<Caller>(running.port(), static_cast<uint8_t>(10 + i)));
    CHECK(idle.back()->Ask() == 'a');
  }
  WaitFor([&] { return Caller(running.port(), 3).Ask() == 'a'; });
  CHECK(running.server.stats().displaced.load() >= 1);
}

void TestChargesFollowWhatHoldsThem() {
  Budget all(1000);
  const auto share = std::make_shared<Share>(300);
  {
    Charge first(Account{&all, share});
    first.Set(200);
    Charge second = first;
    CHECK(all.used() == 400 && share->buffered.used() == 400);
    CHECK(!first.account().HasRoomFor(0) && all.HasRoomFor(600));
    Charge third = std::move(first);
    CHECK(all.used() == 400 && first.bytes() == 0 && third.bytes() == 200);
    second = Charge();
    CHECK(all.used() == 200);
    third.Set(50);
    CHECK(share->buffered.used() == 50);
  }
  CHECK(all.used() == 0 && share->buffered.used() == 0);
}

void TestLargeRequestsWaitForSmallOnes() {
  constexpr int kMany = 40;
  Running running({});
  Caller small(running.port(), 3);
  CHECK(small.Ask() == 'a');
  std::vector<std::unique_ptr<Caller>> large;
  for (int i = 0; i < kMany; ++i) {
    large.push_back(std::make_unique<Caller>(running.port(), 2));
    large.back()->Send("c" + std::string(kLargeBytes - 2, ' '));
  }
  for (const auto& caller : large) caller->Send(" ");
  small_answered = 0;
  while (large_answered < kMany) {
    small.Send("a");
    ++small_sent;  // after it was sent: the time this thread waits for a core must not count
    CHECK(small.Receive() == 'a');
  }
  // The one in progress, the next one, and one that became complete as it was read.
  CHECK(most_in_a_row <= 4);
}

}  // namespace

int main() {
  TestChargesFollowWhatHoldsThem();
  TestConnectionsOfOneAddress();
  TestUnreadAnswersOfOneAddress();
  TestIdleOnesGiveWay();
  TestLargeRequestsWaitForSmallOnes();
  return 0;
}
