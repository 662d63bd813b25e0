// The client: many threads against servers that misbehave at random, and versions that are replaced.
#include "cube/client/client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "cube/client/load.h"
#include "tests/check.h"
#include "tests/cube/client_fixture.h"
#include "util/hash.h"

namespace elasticctr::cube {
namespace {

// One shard's server. `trouble` per thousand of its answers are cut, garbage, late or errors.
class Server {
 public:
  Server(uint32_t shard, uint32_t shards, uint32_t trouble) : shard_(shard), shards_(shards), trouble_(trouble) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 && listen(listener_, 128) == 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    accepting_ = std::thread([this] { Accept(); });
  }
  ~Server() {
    shutdown(listener_, SHUT_RDWR);
    accepting_.join();
    for (const int fd : fds_) shutdown(fd, SHUT_RDWR);
    for (std::thread& thread : serving_) thread.join();
    for (const int fd : fds_) close(fd);
    close(listener_);
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  void Activate(uint64_t version) { active_ = version; }
  void Replace(uint64_t life) { life_ = life; }

 private:
  void Accept() {
    for (int fd; (fd = accept(listener_, nullptr, nullptr)) >= 0;) {
      fds_.push_back(fd);
      serving_.emplace_back([this, fd, seed = serving_.size() * 64 + port_] { Serve(fd, seed); });
    }
  }

  void Serve(int fd, uint64_t seed) {
    std::mt19937_64 rng(seed);
    while (Answer(fd, rng)) {
    }
    shutdown(fd, SHUT_RDWR);
  }

  static bool Read(int fd, void* data, size_t size) {
    return size == 0 || recv(fd, data, size, MSG_WAITALL) == static_cast<ssize_t>(size);
  }

  bool Answer(int fd, std::mt19937_64& rng) {
    uint8_t head[wire::kHeaderBytes];
    if (!Read(fd, head, sizeof head)) return false;
    wire::Header header = wire::DecodeHeader(head);
    std::vector<uint64_t> keys(header.body_bytes / 8);
    if (!Read(fd, keys.data(), keys.size() * 8)) return false;
    std::vector<uint8_t> bytes;
    const auto text = [&](const std::string& body) { bytes = Frame(header, {body.begin(), body.end()}); };
    const uint64_t active = active_;
    bool goes_on = true;
    switch (static_cast<wire::Opcode>(header.opcode)) {
      case wire::Opcode::kHello: text("{\"protocol\": 1, \"max_body\": 16777216, \"max_keys\": 1000}"); break;
      case wire::Opcode::kPing: text(""); break;
      case wire::Opcode::kDescribe: text(Report(shard_, shards_, active, life_)); break;
      case wire::Opcode::kLookup: {
        const uint64_t version = header.version == 0 ? active : header.version;
        if (version != active && version + 1 != active) {
          header.status = static_cast<uint8_t>(Code::kNotFound);
          header.detail = static_cast<uint16_t>(wire::Detail::kNoVersion);
          text("gone");
          break;
        }
        bytes = LookupFrame(header, keys.data(), keys.size(), version, life_);
        EncodeFixed64(bytes.data() + wire::kHeaderBytes + 8, active);
        goes_on = Disturb(bytes, rng);
      }
    }
    return send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()) && goes_on;
  }

  bool Disturb(std::vector<uint8_t>& bytes, std::mt19937_64& rng) const {
    if (rng() % 1000 >= trouble_) return true;
    switch (rng() % 4) {
      case 0: bytes.resize(bytes.size() / 2); return false;
      case 1: bytes[rng() % 4] ^= 1; return true;
      case 2: std::this_thread::sleep_for(std::chrono::milliseconds(30)); return true;
      default: bytes.clear(); return false;
    }
  }

  const uint32_t shard_, shards_, trouble_;
  int listener_;
  uint16_t port_;
  std::atomic<uint64_t> active_{1}, life_{0};
  std::vector<int> fds_;
  std::vector<std::thread> serving_;
  std::thread accepting_;
};

void TestThreads(uint64_t cache_bytes) {
  constexpr uint32_t kShards = 2, kReplicas = 2;
  std::vector<std::unique_ptr<Server>> servers;
  ClientSettings settings;
  for (uint32_t s = 0; s < kShards; ++s) {
    settings.shards.emplace_back();
    for (uint32_t r = 0; r < kReplicas; ++r) {
      servers.push_back(std::make_unique<Server>(s, kShards, r == 0 ? 60 : 0));
      settings.shards[s].push_back(servers.back()->address());
    }
  }
  settings.timeout_ms = 60000;
  settings.connect_ms = 2000;
  settings.backup_ms = 10;
  settings.eject_ms = 20;
  settings.retries = 6;
  settings.cache_bytes = cache_bytes;
  settings.refresh_ms = 20;
  Client client(settings);
  client.Connect(60000);
  std::atomic<int> failures{0};
  std::atomic<bool> stopping{false};
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937_64 rng(seed);
      std::vector<uint64_t> keys(150);
      while (!stopping) {
        for (uint64_t& key : keys) key = rng() % 4000 * 0x9E3779B97F4A7C15ULL;
        const TableQuery query{kTable, keys.data(), keys.size()};
        try {
          const Answer answer = client.Get({&query, 1}, {});
          for (size_t i = 0; i < keys.size(); ++i) {
            float row[kDim] = {};
            if (IsThere(keys[i])) MakeRow(answer.version, keys[i], row);
            CHECK(answer.tables[0].found[i] == IsThere(keys[i]));
            CHECK(std::memcmp(answer.tables[0].rows.get() + i * kRowBytes, row, kRowBytes) == 0);
          }
        } catch (const Error& e) {
          std::fprintf(stderr, "%s\n", e.what());
          ++failures;
        }
      }
    });
  }
  for (uint64_t version = 2; version <= 8; ++version) {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    for (const auto& server : servers) server->Activate(version);
  }
  ClientCounters& counters = client.cluster().counters();
  const auto is_enough = [&] { return counters.calls > 50 && counters.retries > 0 && counters.version_changes > 3; };
  for (int i = 0; i < 600 && !is_enough(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  stopping = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
  CHECK(is_enough());
  Load load(client, kTable, {1, 2, 3}, {2, 3, 0.1, 0, {}});
  const LoadResult result = load.Finish();
  CHECK(result.calls > 0 && result.versions.rbegin()->first == 8);
}

// A version replaces another one of the same number, shard by shard: no answer mixes rows of both, cached ones
// included.
void TestReplaced(uint64_t cache_bytes) {
  Server first(0, 2, 0), second(1, 2, 0);
  first.Replace(1);
  second.Replace(1);
  ClientSettings settings;
  settings.shards = {{first.address()}, {second.address()}};
  settings.timeout_ms = 60000;
  settings.cache_bytes = cache_bytes;
  Client client(settings);
  client.Connect(60000);
  std::vector<uint64_t> keys(60);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = (i + 1) * 0x9E3779B97F4A7C15ULL;
  const auto life_of = [&](const Answer& answer) {
    float lives = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!IsThere(keys[i])) continue;
      float row[kDim];
      std::memcpy(row, answer.tables[0].rows.get() + i * kRowBytes, sizeof row);
      CHECK(lives == 0 || lives == row[0]);
      lives = row[0];
    }
    return static_cast<uint64_t>(lives) / kLife;
  };
  for (uint64_t life = 1; life < 8; ++life) {
    // Different sets, so that the cache has some of them and lacks others.
    const TableQuery half{kTable, keys.data(), keys.size() / 2}, whole{kTable, keys.data(), keys.size()};
    client.Get({&half, 1}, {});
    CHECK(life_of(client.Get({&whole, 1}, {})) == life);
    client.Get({&half, 1}, {});
    first.Replace(life + 1);
    try {
      // The other shard's rows may be cached, so that the change is not noticed yet.
      CHECK(life_of(client.Get({&whole, 1}, {0, 50, false})) == life);
    } catch (const Error& e) {
      CHECK(e.code() == Code::kUnavailable);
    }
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      second.Replace(life + 1);
    });
    for (uint64_t seen = 0; seen != life + 1;) {
      seen = life_of(client.Get({&whole, 1}, {}));
      CHECK(seen == life || seen == life + 1);
    }
    later.join();
  }
}

}  // namespace
}  // namespace elasticctr::cube

int main() {
  using namespace elasticctr::cube;
  TestThreads(0);
  TestThreads(32 << 10);
  TestReplaced(0);
  TestReplaced(32 << 10);
}
