// The shutdown of a server, over real sockets, with a protocol of one-letter requests: everything sent before the
// shutdown is answered, whether it is in a buffer, in a socket, in the backlog or in transit. Run under the thread and
// address sanitizers.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "net/loop/server.h"
#include "tests/check.h"

using namespace elasticctr::net;

namespace {

constexpr size_t kBigBytes = 300'000;

void SleepMs(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// A request is a letter and a line end: 'a' is answered at once, 'b' with many bytes, 'c' later with reading paused,
// 'd' later while reading continues.
class Letters : public Application {
 public:
  ~Letters() override {
    for (std::thread& thread : threads_) thread.join();
  }
  void Serve(Server* server) { server_ = server; }
  void AnswerLater(ConnectionId id, std::string answer) {
    std::lock_guard lock(mutex_);
    threads_.emplace_back([this, id, answer = std::move(answer)] {
      SleepMs(250);
      server_->Complete(id, answer, false);
    });
  }

  std::unique_ptr<Session> Open(Protocol, ConnectionId id, int) override;
  void OnWake(size_t) override {}
  void OnAnswered(size_t, uint64_t) override {}
  uint32_t silent_limit_s() const override { return 0; }

 private:
  Server* server_ = nullptr;
  std::mutex mutex_;
  std::vector<std::thread> threads_;
};

class LetterSession : public Session {
 public:
  LetterSession(Letters* letters, ConnectionId id) : letters_(letters), id_(id) {}
  Step Consume(const uint8_t* data, size_t size, uint64_t, Buffer* out) override {
    Step step;
    while (step.consumed < size) {
      const char got = static_cast<char>(data[step.consumed++]);
      if (got != '\n') {
        letter_ = got;
        continue;
      }
      if (letter_ == 'c' || letter_ == 'd') {
        letters_->AnswerLater(id_, {letter_});
        if (letter_ == 'd') ++owed_;
        if (letter_ == 'c') step.next = Next::kWait;
      } else {
        out->Append(std::string(letter_ == 'b' ? kBigBytes : 1, letter_));
        if (out->size() >= kFlushBytes) step.next = Next::kFlush;
      }
      letter_ = '\0';
      if (step.next != Next::kRead) return step;
    }
    step.in_request = letter_ != '\0';
    return step;
  }
  size_t owed() const override { return owed_; }
  void OnAnswer() override { --owed_; }

 private:
  Letters* const letters_;
  const ConnectionId id_;
  char letter_ = '\0';
  size_t owed_ = 0;
};

std::unique_ptr<Session> Letters::Open(Protocol, ConnectionId id, int) {
  return std::make_unique<LetterSession>(this, id);
}

class Peer {
 public:
  explicit Peer(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    timeval limit{20, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    int one = 1;
    setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  }
  void Send(const std::string& bytes) {
    CHECK(::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
  }
  bool TrySend(const std::string& bytes) { return ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0; }
  std::string Receive(size_t size) {
    std::string got(size, '\0');
    got.resize(static_cast<size_t>(std::max<ssize_t>(::recv(fd_.get(), got.data(), size, MSG_WAITALL), 0)));
    return got;
  }
  // Everything received until the server closes the connection, which it does cleanly.
  std::string ReceiveAll() {
    std::string all, part(65536, '\0');
    ssize_t n;
    while ((n = ::recv(fd_.get(), part.data(), part.size(), 0)) > 0) all.append(part, 0, static_cast<size_t>(n));
    CHECK(n == 0);
    return all;
  }

 private:
  Fd fd_;
};

// A server that shuts down while it serves its peers.
class Ending {
 public:
  Ending() : server_(Options(), &letters_) {
    letters_.Serve(&server_);
    server_.Start();
  }
  uint16_t port() const { return server_.ports()[0]; }
  void Stop(double drain_s) {
    stopper_ = std::thread([this, drain_s] {
      const uint64_t began_ns = NowNs();
      server_.Stop(drain_s);
      took_s_ = static_cast<double>(NowNs() - began_ns) / 1e9;
    });
  }
  double Join() {
    stopper_.join();
    return took_s_;
  }

 private:
  static ServerOptions Options() {
    ServerOptions options;
    options.ports = {0};
    options.threads = 2;
    return options;
  }

  Server server_;
  Letters letters_;  // its threads end before the server does
  std::thread stopper_;
  double took_s_ = 0;
};

// The bytes arrive just after the shutdown began, like those of a distant peer.
void TestWhatIsUnderWay() {
  Ending ending;
  Peer asking(ending.port()), idle(ending.port());
  asking.Send("a\n");
  CHECK(asking.Receive(1) == "a");
  asking.Send("a\n");
  ending.Stop(5);
  SleepMs(30);
  asking.Send("a\na\n");
  idle.Send("a\n");
  SleepMs(30);
  asking.Send("a\n");
  CHECK(asking.ReceiveAll() == "aaaa");
  CHECK(idle.ReceiveAll() == "a");
  CHECK(ending.Join() < 4);
}

void TestHalfARequest() {
  Ending ending;
  Peer peer(ending.port());
  peer.Send("a\na");
  CHECK(peer.Receive(1) == "a");
  ending.Stop(5);
  SleepMs(400);
  peer.Send("\n");
  CHECK(peer.ReceiveAll() == "a");
  CHECK(ending.Join() < 4);
}

// Answers back up: the peer reads late, and the following requests wait in buffers.
void TestAnswersThatWait() {
  Ending ending;
  Peer peer(ending.port());
  std::string asked;
  for (int i = 0; i < 40; ++i) asked += "b\n";
  peer.Send(asked);
  ending.Stop(20);
  SleepMs(700);
  CHECK(peer.ReceiveAll() == std::string(40 * kBigBytes, 'b'));
  CHECK(ending.Join() < 18);
}

void TestAnswersMadeElsewhere() {
  Ending ending;
  Peer waiting(ending.port()), owed(ending.port());
  waiting.Send("c\na\nc\na\n");
  owed.Send("d\nd\na\n");
  SleepMs(50);
  ending.Stop(10);
  CHECK(waiting.ReceiveAll() == "caca");
  CHECK(owed.ReceiveAll() == "add");
  CHECK(ending.Join() < 8);
}

void TestConnectionsNobodyHasTaken() {
  Ending ending;
  std::vector<std::unique_ptr<Peer>> peers;
  for (int i = 0; i < 50; ++i) {
    peers.push_back(std::make_unique<Peer>(ending.port()));
    peers.back()->Send("a\n");
  }
  ending.Stop(5);
  for (auto& peer : peers) CHECK(peer->ReceiveAll() == "a");
  peers.clear();
  CHECK(ending.Join() < 4);
}

// A peer that keeps sending, a silent one and one that never reads: none of them delays the shutdown forever.
void TestPeersThatDoNotEnd() {
  Ending ending;
  Peer silent(ending.port()), deaf(ending.port());
  std::thread chatty([&] {
    Peer peer(ending.port());
    while (peer.TrySend("a\n") && peer.Receive(1) == "a") {
    }
  });
  std::string asked;
  for (int i = 0; i < 40; ++i) asked += "b\n";
  deaf.Send(asked);
  SleepMs(100);
  ending.Stop(2);
  chatty.join();
  CHECK(silent.ReceiveAll().empty());
  const double took_s = ending.Join();
  CHECK(took_s >= 1.9 && took_s < 4);
}

}  // namespace

int main() {
  TestWhatIsUnderWay();
  TestHalfARequest();
  TestAnswersThatWait();
  TestAnswersMadeElsewhere();
  TestConnectionsNobodyHasTaken();
  TestPeersThatDoNotEnd();
  return 0;
}
