// bRPC on the prediction server's port, over real sockets: requests in rows on one connection, answers that overtake
// each other, a token, frames in pieces, frames that are none, streams of mutated bytes, and the end while requests are
// under way. Run under the thread and address sanitizers.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <random>
#include <thread>

#include "serve/brpc/frame.h"
#include "serve/brpc/session.h"
#include "serve/service.h"
#include "serve/version/version.h"
#include "tests/check.h"
#include "util/protobuf.h"

using namespace elasticctr;
using namespace elasticctr::serve;
using protobuf::Reader;
using protobuf::Writer;

namespace {

constexpr char kCtr[] = "baidu.paddle_serving.predictor.ctr_prediction.CTRPredictionService";
constexpr uint64_t kSlow = 500;  // a row that takes its time to be found

class Rows : public RowSource {
 public:
  void LookUp(Table* tables, size_t count, uint64_t, Trouble*) const override {
    for (size_t t = 0; t < count; ++t) {
      for (size_t i = 0; i < tables[t].count; ++i) {
        if (tables[t].feasigns[i] == kSlow) std::this_thread::sleep_for(std::chrono::milliseconds(300));
        tables[t].rows[i] = static_cast<float>(tables[t].feasigns[i]);
        tables[t].found[i] = 1;
        ++tables[t].hits;
      }
    }
  }
};

// A score is the sum of rows and dense values, over a thousand.
class Graph : public DenseGraph {
 public:
  void Run(std::span<const Input> inputs, size_t n, size_t, float* out) const override {
    for (size_t i = 0; i < n; ++i) out[i] = 0;
    for (const Input& input : inputs) {
      const auto* data = static_cast<const float*>(input.data);
      auto width = static_cast<size_t>(input.shape[1]);
      for (size_t i = 0; i < n * width; ++i) out[i / width] += data[i] / 1000;
    }
  }
};

std::vector<Model> MakeModels() {
  Plan plan;
  plan.spec.format = TextFormat::kSlot;
  plan.spec.labels = plan.labels = {"click"};
  plan.spec.sparse = {{"user", false, false, 64}, {"item", false, false, 64}};
  plan.sparse.resize(2);
  for (uint32_t i = 0; i < 2; ++i) {
    plan.sparse[i].max_values = 64;
    plan.sparse[i].pieces = {{0, 1, i}};
  }
  plan.spec.dense = {{"age", 1, {}, {}, {}}};
  plan.dense_columns = {0};
  plan.dense_width = 1;
  plan.tables = {{"t", 1}};
  plan.pooled_width = 2;
  plan.Seal();
  std::vector<Model> models;
  for (const char* name : {"other", "m"}) {
    Model model;
    model.name = name;
    model.paddle_default = model.name == "m";
    Variant variant;
    variant.name = "live";
    variant.version =
        std::make_shared<ServedVersion>(name, 3, plan, std::make_shared<Rows>(), std::make_unique<Graph>(), Policy());
    model.variants.push_back(std::move(variant));
    models.push_back(std::move(model));
  }
  return models;
}

struct Call {
  uint64_t id;
  std::string service = kCtr;
  std::string token = {};
  std::string model = {};
  int32_t timeout_ms = 0;
};

std::string Frame(const std::string& meta, const std::string& message) {
  std::string out = "PRPC";
  for (size_t size : {meta.size() + message.size(), meta.size()}) {
    for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<char>(size >> shift));
  }
  return out + meta + message;
}

std::string MetaOf(const Call& call) {
  std::string meta;
  Writer writer(&meta);
  size_t request = writer.Begin(1);
  writer.Bytes(1, call.service);
  writer.Bytes(2, "inference");
  if (call.timeout_ms != 0) writer.Int32(8, call.timeout_ms);
  writer.End(request);
  writer.Uint64(4, call.id);
  if (!call.token.empty()) writer.Bytes(7, call.token);
  if (!call.model.empty()) {
    size_t entry = writer.Begin(9);
    writer.Bytes(1, "model");
    writer.Bytes(2, call.model);
    writer.End(entry);
  }
  return meta;
}

std::string Instance(uint64_t user, uint64_t item, float age) {
  std::string message;
  Writer writer(&message);
  size_t instance = writer.Begin(1);
  const int64_t ids[] = {static_cast<int64_t>(user), static_cast<int64_t>(item)};
  writer.PackedInt64(1, ids, 2);
  writer.PackedFloat(2, &age, 1);
  writer.End(instance);
  return message;
}

std::string Ask(const Call& call, uint64_t user) { return Frame(MetaOf(call), Instance(user, 1, 0.5f)); }
float ScoreOf(uint64_t user) { return static_cast<float>(user) / 1000 + 0.001f + 0.0005f; }

struct Reply {
  uint64_t id = 0;
  int32_t error = -1;
  std::string text;
  float score = -1;
  std::string model;
};

class Peer {
 public:
  explicit Peer(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    timeval limit{30, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  ~Peer() { ::close(fd_); }

  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  // False: the connection ended.
  bool Receive(Reply* reply) {
    brpc::Header header;
    if (!Fill(brpc::kHeaderBytes)) return false;
    CHECK(brpc::ReadHeader(reinterpret_cast<const uint8_t*>(have_.data()), &header));
    if (!Fill(brpc::kHeaderBytes + header.body_bytes)) return false;
    std::string body = have_.substr(brpc::kHeaderBytes, header.body_bytes);
    have_.erase(0, brpc::kHeaderBytes + header.body_bytes);
    *reply = Reply();
    std::string_view meta_bytes = std::string_view(body).substr(0, header.meta_bytes);
    brpc::RequestMeta meta = brpc::ReadRequestMeta(meta_bytes);
    reply->id = meta.correlation_id;
    reply->model = meta.user_field("model");
    Reader reader(meta_bytes);
    while (reader.Next()) {
      if (reader.field() != 2) continue;
      Reader response = reader.AsMessage("RpcResponseMeta");
      while (response.Next()) {
        if (response.field() == 1) reply->error = response.AsInt32();
        if (response.field() == 2) reply->text = response.AsString();
      }
    }
    Reader message(std::string_view(body).substr(header.meta_bytes));
    while (message.Next()) {
      if (message.field() != 1) continue;
      Reader prediction = message.AsMessage("CTRResInstance");
      while (prediction.Next()) {
        if (prediction.field() == 2) reply->score = prediction.AsFloat();
      }
    }
    return true;
  }

 private:
  bool Fill(size_t size) {
    char part[65536];
    while (have_.size() < size) {
      ssize_t n = ::recv(fd_, part, sizeof part, 0);
      if (n <= 0) return false;
      have_.append(part, static_cast<size_t>(n));
    }
    return true;
  }

  int fd_;
  std::string have_;
};

struct Running {
  explicit Running(const std::string& token = {}, size_t workers = 2, uint32_t queue_ms = 20'000)
      : service(Options(token, workers, queue_ms)) {
    service.SetModels(MakeModels());
    service.Start();
  }
  static ServiceOptions Options(const std::string& token, size_t workers, uint32_t queue_ms) {
    ServiceOptions options;
    options.net.ports = {0};
    options.net.limits.request_timeout_s = 1;
    options.engine.workers = workers;
    options.engine.timeout_ms = 30'000;
    options.engine.queue_ms = queue_ms;
    options.engine.limits.body_bytes = 1 << 16;
    options.token = token;
    return options;
  }
  uint16_t port() const { return service.ports()[0]; }
  Service service;
};

void CheckAnswers(uint16_t port, const std::string& token = {}) {
  Peer peer(port);
  Call call{9};
  call.token = token;
  Reply reply;
  CHECK(peer.Send(Ask(call, 7)) && peer.Receive(&reply));
  CHECK(reply.id == 9 && reply.error == 0 && std::abs(reply.score - ScoreOf(7)) < 1e-6f && reply.model == "m");
}

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
  std::this_thread::sleep_for(std::chrono::milliseconds(120));  // it waits too long already
  CHECK(peer.Send(Ask({3}, 1)));
  Reply reply;
  CHECK(peer.Receive(&reply) && reply.id == 3 && reply.error == 2004);
}

// PROMISE: bRPC requests queued faster than they are answered | their bytes are charged; past the share they are
// refused
void TestQueuedBytesAreCharged() {
  ServiceOptions options = Running::Options({}, 1, 20'000);
  options.net.max_buffered_bytes = 1 << 20;  // a quarter of it is this address's
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
  // Past the share they are refused; half a message more, and the connection is closed.
  size_t taken = 0;
  Reply reply;
  for (int i = 0; i < 20 && peer.Receive(&reply); ++i) taken += reply.error != 2004;
  CHECK(taken < 10);
  // What is answered is charged no more.
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
    // Refused as soon as the meta is there; the rest never comes.
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
  closes(std::string("PRPC\0\0\0\x05\0\0\0\x06", 12) + "123456");                // meta larger than all
  closes(std::string("PRPC\0\0\0\x05\0\0\0\x05", 12) + "\xff\xff\xff\xff\xff");  // no meta
  closes(std::string("PRPC\xff\xff\xff\xff\xff\xff\xff\xff", 12));
  closes(std::string("PRPC\0\0\1\0\0\0\0\x01", 12));  // and nothing more: half a message waits no longer than it may
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

int main() {
  TestPipelined(100);
  TestPipelined(3 * BrpcSession::kMaxOwed);
  TestAnswersOvertake();
  TestModelsAndErrors();
  TestTimeIsUp();
  TestOverloadIsToldAtOnce();
  TestQueuedBytesAreCharged();
  TestToken();
  TestHostileFrames();
  TestMutatedStreams();
  TestStopAnswersWhatArrived();
  std::puts("ok");
}
