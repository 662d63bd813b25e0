// The client against bytes that lie, a cache against a map, and many threads against servers that misbehave at random.

#include "cube/client/client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "cube/client/load.h"
#include "tests/check.h"
#include "util/hash.h"

namespace elasticctr::cube {
namespace {

namespace wire = net::wire;

constexpr uint32_t kDim = 3;
constexpr uint32_t kRowBytes = 4 * kDim;
constexpr char kTable[] = "m/t";

uint64_t TableHash() { return Xxh64(kTable, sizeof kTable - 1, 0); }
bool IsThere(uint64_t feasign) { return feasign % 5 != 0; }

void MakeRow(uint64_t version, uint64_t feasign, float* row) {
  row[0] = static_cast<float>(version);
  row[1] = static_cast<float>(feasign % 100'000);
  row[2] = -row[1];
}

std::vector<uint8_t> Frame(wire::Header header, const std::vector<uint8_t>& body) {
  header.body_bytes = static_cast<uint32_t>(body.size());
  std::vector<uint8_t> frame(wire::kHeaderBytes);
  wire::EncodeHeader(frame.data(), header);
  frame.insert(frame.end(), body.begin(), body.end());
  return frame;
}

// Lives are versions that had the same number one after the other; 0: the server does not tell identities.
constexpr uint64_t kLife = 1000;  // added to the version in rows
std::string IdentityOf(uint64_t life) { return life == 0 ? "" : "life " + std::to_string(life); }

std::vector<uint8_t> LookupFrame(const wire::Header& request, const uint64_t* keys, size_t count, uint64_t version,
                                 uint64_t life = 0) {
  std::vector<uint8_t> body(wire::LookupBodyBytes(count, kRowBytes));
  EncodeFixed32(body.data(), static_cast<uint32_t>(count));
  EncodeFixed32(body.data() + 4, kRowBytes);
  EncodeFixed64(body.data() + 8, version);
  uint8_t* found = body.data() + wire::kLookupHeadBytes;
  uint8_t* rows = found + wire::FoundBytes(count);
  for (size_t i = 0; i < count; ++i) {
    if (!IsThere(keys[i])) continue;
    found[i / 8] |= static_cast<uint8_t>(1 << (i % 8));
    float row[kDim];
    MakeRow(version + life * kLife, keys[i], row);
    std::memcpy(rows + i * kRowBytes, row, kRowBytes);
  }
  wire::Header header = request;
  header.version = version;
  header.time_ms = wire::TagOf(IdentityOf(life));
  return Frame(header, body);
}

// Feeds bytes in pieces of random size, as a socket would. True: a whole answer.
bool Feed(AnswerReader& reader, const std::vector<uint8_t>& bytes, std::mt19937_64& rng) {
  size_t at = 0;
  while (at < bytes.size()) {
    iovec buffers[2];
    const int n = reader.Buffers(buffers);
    CHECK(n >= 1);
    size_t piece = std::min<size_t>(bytes.size() - at, 1 + rng() % 200);
    size_t given = 0;
    for (int i = 0; i < n && given < piece; ++i) {
      const size_t part = std::min(piece - given, buffers[i].iov_len);
      std::memcpy(buffers[i].iov_base, bytes.data() + at + given, part);
      given += part;
    }
    CHECK(given > 0);
    at += given;
    if (reader.Consume(given)) return true;
  }
  return false;
}

void TestAnswers() {
  std::mt19937_64 rng(11);
  AnswerReader reader;
  int whole = 0, refused = 0;
  for (int round = 0; round < 30000; ++round) {
    std::vector<uint64_t> keys(rng() % 70);
    for (uint64_t& key : keys) key = rng();
    wire::Header request;
    request.id = rng();
    request.table = TableHash();
    request.opcode = static_cast<uint8_t>(wire::Opcode::kLookup);
    std::vector<uint8_t> bytes = LookupFrame(request, keys.data(), keys.size(), 7);
    if (rng() % 4 == 0) {  // an error instead
      wire::Header header = request;
      header.status = static_cast<uint8_t>(10 + rng() % 10);
      bytes = Frame(header, std::vector<uint8_t>(rng() % 300, 'x'));
    }
    const bool is_damaged = rng() % 2 == 0;
    for (uint64_t flips = is_damaged ? 1 + rng() % 3 : 0; flips > 0; --flips) {
      bytes[rng() % std::min<size_t>(bytes.size(), 64)] = static_cast<uint8_t>(rng());
    }
    if (is_damaged && rng() % 4 == 0) bytes.resize(rng() % (bytes.size() + 1));
    std::vector<uint8_t> rows(keys.size() * kRowBytes);
    const bool is_direct = rng() % 2 == 0 && !rows.empty();
    reader.Start({wire::Opcode::kLookup, request.id, request.table, 7, keys.size(), kRowBytes,
                  is_direct ? rows.data() : nullptr});
    try {
      if (!Feed(reader, bytes, rng)) continue;
      ++whole;
      if (is_damaged || reader.header().status != 0) continue;
      for (size_t i = 0; i < keys.size(); ++i) {
        float row[kDim] = {};
        if (IsThere(keys[i])) MakeRow(7, keys[i], row);
        CHECK((reader.found()[i / 8] >> (i % 8) & 1) == IsThere(keys[i]));
        CHECK(std::memcmp(reader.rows() + i * kRowBytes, row, kRowBytes) == 0);
      }
      CHECK(reader.active() == 7);
      CHECK(!is_direct || reader.rows() == rows.data());
    } catch (const Error& e) {
      CHECK(is_damaged);
      CHECK(e.code() == Code::kCorruption || e.code() == Code::kFailedPrecondition);
      ++refused;
    }
  }
  CHECK(whole > 10000 && refused > 3000);
}

std::string Report(uint32_t shard, uint32_t shards, uint64_t active, uint64_t life = 0) {
  std::string versions;
  for (uint64_t version = active > 1 ? active - 1 : 1; version <= active; ++version) {
    versions += std::string(versions.empty() ? "" : ", ") + "{\"version\": " + std::to_string(version) +
                ", \"identity\": \"" + IdentityOf(life) +
                "\", \"state\": \"ready\", \"tables\": [{\"name\": \"t\", \"row_bytes\": 12, \"encoding\": \"fp32\", "
                "\"dim\": 3, \"shard\": " +
                std::to_string(shard) + ", \"shards\": " + std::to_string(shards) + ", \"sharding\": \"buckets\"}]}";
  }
  return "{\"models\": [{\"name\": \"m\", \"active\": " + std::to_string(active) + ", \"versions\": [" + versions +
         "]}]}";
}

void TestReports() {
  std::mt19937_64 rng(12);
  const std::string good = Report(1, 2, 5);
  CHECK(ParseReport(good)[0].versions[1].tables[0].shard == 1);
  for (int round = 0; round < 20000; ++round) {
    std::string text = good;
    for (uint64_t flips = 1 + rng() % 4; flips > 0; --flips) text[rng() % text.size()] = static_cast<char>(rng());
    if (rng() % 8 == 0) text.resize(rng() % text.size());
    for (const bool as_hello : {false, true}) {
      try {
        if (as_hello) {
          ParseHello(text);
        } else {
          ParseReport(text);
        }
      } catch (const Error& e) {
        CHECK(e.code() == Code::kCorruption);
      }
    }
  }
}

void TestCache() {
  std::mt19937_64 rng(13);
  HotCache cache(64 << 10);
  CHECK(cache.bytes() <= 64 << 10);
  std::map<std::pair<uint64_t, uint64_t>, std::vector<uint8_t>> truth;
  uint64_t hits = 0;
  for (int round = 0; round < 200'000; ++round) {
    const uint64_t version = 1 + rng() % 2, feasign = std::min(rng() % 3000, rng() % 3000);
    const auto row_bytes = static_cast<uint32_t>(20 + feasign % 3 * 40);
    auto& row = truth[{version, feasign}];
    if (row.empty()) {
      row.resize(row_bytes);
      for (uint8_t& byte : row) byte = static_cast<uint8_t>(rng());
    }
    std::vector<uint8_t> got(row_bytes);
    switch (cache.Get({version, feasign, 9}, got.data(), row_bytes)) {
      case HotCache::Result::kUnknown:
        cache.Put({version, feasign, 9}, IsThere(feasign) ? row.data() : nullptr, row_bytes);
        break;
      case HotCache::Result::kFound:
        CHECK(IsThere(feasign) && got == row);
        ++hits;
        break;
      case HotCache::Result::kMissing: CHECK(!IsThere(feasign)); break;
    }
    uint8_t other[100];
    CHECK(cache.Get({version, feasign, 10}, other, row_bytes) == HotCache::Result::kUnknown);
  }
  CHECK(hits > 10'000);
  HotCache none(100);
  none.Put({1, 2, 3}, nullptr, 0);
  uint8_t row[8];
  none.Get({1, 2, 3}, row, 8);
}

void TestHistogram() {
  uint64_t before = 0;
  for (uint64_t ns = 0; ns < 1 << 20; ns += 1 + ns / 100) {
    const size_t bucket = TimeHistogram::BucketOf(ns);
    CHECK(bucket >= before && bucket < TimeHistogram::kBuckets);
    CHECK(TimeHistogram::UpperEdge(bucket) >= ns && TimeHistogram::UpperEdge(bucket) <= ns + ns / 31 + 1);
    before = bucket;
  }
  CHECK(TimeHistogram::BucketOf(UINT64_MAX) < TimeHistogram::kBuckets);
  TimeHistogram times;
  for (uint64_t i = 1; i <= 1000; ++i) times.Add(i * 1000);
  CHECK(times.Percentile(0.5) >= 500'000 && times.Percentile(0.5) < 520'000);
  CHECK(times.Percentile(0.999) >= 999'000 && times.Percentile(0.999) < 1'035'000);
}

// One shard's server. Some of its answers are cut, garbage, late or errors, as `trouble` per thousand says.
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

// A version takes another one's number, on one shard after the other: no answer has rows of both, cached ones included.
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
    // Different sets, so that some of them the cache has and some it has not.
    const TableQuery half{kTable, keys.data(), keys.size() / 2}, whole{kTable, keys.data(), keys.size()};
    client.Get({&half, 1}, {});
    CHECK(life_of(client.Get({&whole, 1}, {})) == life);
    client.Get({&half, 1}, {});
    first.Replace(life + 1);
    try {
      // The other shard's rows may be cached, so that nobody notices yet.
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
  TestAnswers();
  TestReports();
  TestCache();
  TestHistogram();
  TestThreads(0);
  TestThreads(32 << 10);
  TestReplaced(0);
  TestReplaced(32 << 10);
}
