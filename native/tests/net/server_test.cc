// The whole server in this process, over real sockets: several clients of several protocols while versions change, and
// streams of mutated bytes. Run under the thread and address sanitizers.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <boost/json.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "cube/build/builder.h"
#include "cube/server/service.h"
#include "tests/check.h"
#include "util/hash.h"

namespace fs = std::filesystem;
namespace cube = elasticctr::cube;
namespace wire = elasticctr::net::wire;

namespace {

constexpr size_t kRows = 5000;
constexpr uint32_t kRowBytes = 40;
constexpr char kToken[] = "a secret";

uint64_t FeasignOf(size_t i) { return elasticctr::Mix64(i + 1); }

// Rows contain their version and feasign.
void WriteRow(uint64_t version, uint64_t feasign, uint8_t* row) {
  for (uint32_t w = 0; w < kRowBytes / 8; ++w) {
    uint64_t word = elasticctr::Mix64(feasign + w) ^ version;
    std::memcpy(row + 8 * w, &word, 8);
  }
}

void WriteVersion(const fs::path& data, uint64_t version) {
  fs::path folder = data / "m" / std::to_string(version);
  fs::create_directories(folder);
  cube::BuilderOptions options;
  options.info.name = "m/t";
  options.info.kind = cube::Kind::kBase;
  options.info.encoding = cube::Encoding::kRaw;
  options.info.sharding = cube::Sharding::kBuckets;
  options.info.dim = 0;
  options.info.row_bytes = kRowBytes;
  options.info.shards = 1;
  options.info.version = version;
  options.info.parent = 0;
  options.run_directory = folder.string();
  cube::Builder builder(options);
  for (size_t i = 0; i < kRows; ++i) {
    uint64_t feasign = FeasignOf(i);
    uint8_t row[kRowBytes];
    WriteRow(version, feasign, row);
    builder.Add(&feasign, row, 1);
  }
  builder.Finish({(folder / "t.cube").string()});
  std::ofstream(folder / "shard.json")
      << "{\"format\": 1, \"model\": \"m\", \"version\": " << version
      << ", \"kind\": \"base\", \"parent\": 0, \"shard\": 0, \"shards\": 1, \"files\": "
         "[{\"table\": \"t\", \"name\": \"t.cube\", \"bytes\": "
      << fs::file_size(folder / "t.cube") << "}]}";
}

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

  bool Send(const std::string& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      ssize_t n = ::send(fd_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (n <= 0) return false;
      at += static_cast<size_t>(n);
    }
    return true;
  }
  bool Receive(void* to, size_t size) {
    for (size_t at = 0; at < size;) {
      ssize_t n = ::recv(fd_, static_cast<char*>(to) + at, size - at, 0);
      if (n <= 0) return false;
      at += static_cast<size_t>(n);
    }
    return true;
  }
  void EndSending() { ::shutdown(fd_, SHUT_WR); }
  // Reads until the server closes the connection.
  std::string ReceiveAll() {
    std::string all;
    char part[65536];
    for (ssize_t n; (n = ::recv(fd_, part, sizeof part, 0)) > 0;) all.append(part, static_cast<size_t>(n));
    return all;
  }

 private:
  int fd_;
};

std::string Frame(wire::Opcode opcode, const std::string& body, uint64_t id = 1, uint64_t version = 0) {
  wire::Header header;
  header.body_bytes = static_cast<uint32_t>(body.size());
  header.id = id;
  header.version = version;
  header.table = elasticctr::Xxh64("m/t", 3, 0);
  header.opcode = static_cast<uint8_t>(opcode);
  std::string frame(wire::kHeaderBytes, '\0');
  wire::EncodeHeader(reinterpret_cast<uint8_t*>(frame.data()), header);
  return frame + body;
}

wire::Header ReceiveFrame(Peer& peer, std::string* body) {
  uint8_t bytes[wire::kHeaderBytes];
  CHECK(peer.Receive(bytes, sizeof bytes));
  wire::Header header = wire::DecodeHeader(bytes);
  body->resize(header.body_bytes);
  CHECK(peer.Receive(body->data(), body->size()));
  return header;
}

// Sends lookups until stopped; every row of an answer is from the version the answer names.
void AskByWire(uint16_t port, std::atomic<bool>* stop, std::atomic<uint64_t>* asked, uint64_t seed) {
  std::mt19937_64 random(seed);
  Peer peer(port);
  std::string body;
  CHECK(peer.Send(Frame(wire::Opcode::kHello, kToken)));
  CHECK(ReceiveFrame(peer, &body).status == 0);
  while (!stop->load()) {
    std::vector<std::vector<uint64_t>> batches(1 + random() % 4);
    std::string sent;
    for (size_t b = 0; b < batches.size(); ++b) {
      batches[b].resize(random() % 100);
      for (uint64_t& feasign : batches[b]) feasign = FeasignOf(random() % kRows);
      sent +=
          Frame(wire::Opcode::kLookup, {reinterpret_cast<const char*>(batches[b].data()), 8 * batches[b].size()}, b);
    }
    CHECK(peer.Send(sent));
    for (size_t b = 0; b < batches.size(); ++b) {
      wire::Header header = ReceiveFrame(peer, &body);
      CHECK(header.status == 0 && header.id == b && header.version != 0);
      const char* rows = body.data() + wire::kLookupHeadBytes + wire::FoundBytes(batches[b].size());
      for (size_t i = 0; i < batches[b].size(); ++i) {
        uint8_t row[kRowBytes];
        WriteRow(header.version, batches[b][i], row);
        CHECK(std::memcmp(rows + i * kRowBytes, row, kRowBytes) == 0);
      }
      asked->fetch_add(1);
    }
  }
}

void AskByRedis(uint16_t port, std::atomic<bool>* stop) {
  Peer peer(port);
  CHECK(peer.Send("*2\r\n$4\r\nAUTH\r\n$8\r\na secret\r\n"));
  char ok[5];
  CHECK(peer.Receive(ok, 5) && std::memcmp(ok, "+OK\r\n", 5) == 0);
  // More keys than one search takes.
  constexpr size_t kKeys = 600;
  std::string command = "MGET";
  std::vector<std::string> wanted(3, "*600\r\n");
  for (size_t i = 0; i < kKeys; ++i) {
    command += " " + std::to_string(FeasignOf(i));
    for (uint64_t version = 1; version <= 3; ++version) {
      uint8_t row[kRowBytes];
      WriteRow(version, FeasignOf(i), row);
      wanted[version - 1] += "$40\r\n" + std::string(reinterpret_cast<char*>(row), kRowBytes) + "\r\n";
    }
  }
  std::string answer(wanted[0].size(), '\0');
  while (!stop->load()) {
    CHECK(peer.Send(command + "\r\n"));
    CHECK(peer.Receive(answer.data(), answer.size()));
    CHECK(answer == wanted[0] || answer == wanted[1] || answer == wanted[2]);
  }
}

std::string Post(uint16_t port, const std::string& path, uint64_t version) {
  std::string body = "{\"model\": \"m\", \"version\": " + std::to_string(version) + "}";
  Peer peer(port);
  CHECK(peer.Send("POST " + path +
                  " HTTP/1.1\r\nAuthorization: Bearer a secret\r\nConnection: close\r\nContent-Length: " +
                  std::to_string(body.size()) + "\r\n\r\n" + body));
  return peer.ReceiveAll();
}

std::string Get(uint16_t port, const std::string& path) {
  Peer peer(port);
  CHECK(peer.Send("GET " + path + " HTTP/1.0\r\nAuthorization: Bearer a secret\r\n\r\n"));
  return peer.ReceiveAll();
}

void LoadAndWait(uint16_t port, uint64_t version) {
  while (Post(port, "/v1/load", version).find("\"ready\"") == std::string::npos)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

void TestSwapsUnderLoad(uint16_t port) {
  for (uint64_t version : {1, 2, 3}) LoadAndWait(port, version);
  CHECK(Post(port, "/v1/activate", 1).starts_with("HTTP/1.1 200"));
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> asked{0};
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 3; ++i) threads.emplace_back([&, i] { AskByWire(port, &stop, &asked, i); });
  threads.emplace_back([&] { AskByRedis(port, &stop); });
  for (int round = 0; round < 20; ++round) {
    uint64_t version = 1 + static_cast<uint64_t>(round) % 3;
    LoadAndWait(port, version);
    CHECK(Post(port, "/v1/activate", version).starts_with("HTTP/1.1 200"));
    CHECK(Get(port, "/metrics").find("cube_active_version{model=\"m\"} " + std::to_string(version)) !=
          std::string::npos);
    if (round % 4 == 3) CHECK(Post(port, "/v1/retire", version % 3 + 1).starts_with("HTTP/1.1 200"));
    CHECK(Get(port, "/v1/status").find("\"ready\":true") != std::string::npos);
  }
  while (asked.load() < 200) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

void TestMutatedStreams(uint16_t port) {
  std::mt19937_64 random(7);
  std::string keys(80, 'k');
  const std::string streams[] = {
      Frame(wire::Opcode::kHello, kToken) + Frame(wire::Opcode::kLookup, keys) + Frame(wire::Opcode::kPing, "x") +
          Frame(wire::Opcode::kDescribe, ""),
      "*2\r\n$4\r\nAUTH\r\n$8\r\na "
      "secret\r\n*3\r\n$4\r\nMGET\r\n$1\r\n1\r\n$2\r\n22\r\n*1\r\n$4\r\nINFO\r\n*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n",
      "POST /v1/load HTTP/1.1\r\nAuthorization: Bearer a secret\r\nContent-Length: 29\r\n\r\n{\"model\": \"m\", "
      "\"version\": 999}",
      "POST /DictService/seek HTTP/1.1\r\nAuthorization: Bearer a secret\r\nTransfer-Encoding: "
      "chunked\r\n\r\nc\r\n{\"keys\":[1]}\r\n0\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n",
  };
  for (int i = 0; i < 400; ++i) {
    std::string bytes = streams[i % 4];
    for (uint64_t k = random() % 4; k > 0; --k) {
      size_t at = random() % bytes.size();
      if (random() % 2 == 0) {
        bytes[at] = static_cast<char>(random());
      } else {
        bytes.erase(at, random() % 6);
      }
    }
    Peer peer(port);
    size_t cut = random() % (bytes.size() + 1);
    if (peer.Send(bytes.substr(0, cut))) peer.Send(bytes.substr(cut));
    peer.EndSending();
    peer.ReceiveAll();
  }
  CHECK(Get(port, "/readyz").starts_with("HTTP/1.1 200"));
}

}  // namespace

int main() {
  fs::path data = fs::temp_directory_path() / ("service_test_" + std::to_string(::getpid()));
  fs::create_directories(data);
  for (uint64_t version : {1, 2, 3}) WriteVersion(data, version);
  {
    cube::ServiceOptions options;
    options.net.ports = {0};
    options.net.threads = 2;
    options.net.limits.request_timeout_s = 2;
    options.data = data.string();
    options.token = kToken;
    cube::Service service(options);
    service.Start();
    CHECK(service.WaitStarted(30));
    CHECK(!service.is_ready());
    TestSwapsUnderLoad(service.ports()[0]);
    TestMutatedStreams(service.ports()[0]);
    service.Stop(2);
  }
  {
    cube::ServiceOptions options;
    options.net.ports = {0};
    options.data = data.string();
    cube::Service again(options);
    again.Start();
    CHECK(again.WaitStarted(30) && again.is_ready());
  }
  fs::remove_all(data);
  return 0;
}
