// Load on a lookup server, from one thread: the cube wire, or MGET in the Redis protocol. Requests are made beforehand;
// every answer's length is checked, and the rows of every 64th answer byte for byte.
//
// kv_load fill HOST PORT KEYS ROW_BYTES random|small         writes the rows into a Redis; small: with the keys that
//                                                            redis-benchmark asks for
// kv_load run  PROTOCOL HOST PORT KEYS ROW_BYTES CONNECTIONS PIPELINE BATCH uniform|zipf RATE WARM_S SECONDS
//   PROTOCOL  wire, or redis (keys of 8 bytes), or redis-decimal (keys of 20 digits)
//   RATE      requests per second in all, sent on time whatever comes back; 0: as many as are answered
// Prints one line of JSON.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

namespace {

double Now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

uint64_t Mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ULL;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

// Row i belongs to feasign Mix(i + 1); its words are a function of the feasign.
uint64_t FeasignOf(uint64_t i) { return Mix(i + 1); }

void WriteRow(uint64_t feasign, size_t row_bytes, char* to) {
  for (size_t w = 0; w < row_bytes / 8; ++w) {
    uint64_t word = Mix(feasign + w);
    std::memcpy(to + 8 * w, &word, 8);
  }
}

uint64_t random_state = 0x9E3779B97F4A7C15ULL;
double Random() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return static_cast<double>(random_state >> 11) * 0x1p-53;
}

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::exit(1);
}

int Connect(const char* host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, host, &address.sin_addr);
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) Die("connect");
  int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return fd;
}

enum class Speaks { kWire, kRedis, kRedisDecimal };

struct Shape {
  Speaks speaks;
  size_t keys, row_bytes, batch;
  bool zipf;
};

struct Request {
  std::string bytes;
  std::vector<uint64_t> feasigns;
};

Request MakeRequest(const Shape& shape, uint64_t id) {
  Request request;
  for (size_t k = 0; k < shape.batch; ++k) {
    auto n = static_cast<double>(shape.keys);
    // zipf: the chance of a rank falls as 1/rank; ranks are scattered over the table by FeasignOf.
    double at = shape.zipf ? std::pow(n, Random()) - 1 : n * Random();
    request.feasigns.push_back(FeasignOf(std::min(static_cast<uint64_t>(at), static_cast<uint64_t>(shape.keys - 1))));
  }
  std::string& b = request.bytes;
  if (shape.speaks == Speaks::kWire) {
    b.assign(40, '\0');
    const char* name = std::getenv("KV_TABLE");  // XXH64 of model/table
    uint64_t table = name != nullptr ? std::strtoull(name, nullptr, 10) : 0;
    auto body = static_cast<uint32_t>(8 * shape.batch);
    std::memcpy(b.data(), "\xEC\x57\x43\x01", 4);
    std::memcpy(b.data() + 4, &body, 4);
    std::memcpy(b.data() + 8, &id, 8);
    std::memcpy(b.data() + 24, &table, 8);
    b[36] = 3;
    b.append(reinterpret_cast<const char*>(request.feasigns.data()), body);
    return request;
  }
  b = "*" + std::to_string(shape.batch + 1) + "\r\n$4\r\nMGET\r\n";
  for (uint64_t feasign : request.feasigns) {
    if (shape.speaks == Speaks::kRedis) {
      b += "$8\r\n" + std::string(reinterpret_cast<const char*>(&feasign), 8) + "\r\n";
    } else {
      char text[32];
      std::snprintf(text, sizeof text, "$20\r\n%020llu\r\n", static_cast<unsigned long long>(feasign));
      b += text;
    }
  }
  return request;
}

// Bytes before the first row of an answer, around each row, and in all; every key is there, so they are known.
struct Layout {
  size_t head, before_row, after_row, total;
};

Layout LayoutOf(const Shape& shape) {
  Layout l{};
  if (shape.speaks == Speaks::kWire) {
    l.head = 40 + 16 + (shape.batch + 63) / 64 * 8;
  } else {
    l.head = 3 + std::to_string(shape.batch).size();
    l.before_row = 3 + std::to_string(shape.row_bytes).size();
    l.after_row = 2;
  }
  l.total = l.head + shape.batch * (l.before_row + shape.row_bytes + l.after_row);
  return l;
}

struct Sent {
  uint32_t request;
  double at;
};

struct Connection {
  int fd = -1;
  std::string out;
  size_t out_at = 0;
  std::vector<char> in;
  size_t have = 0;
  std::deque<Sent> flying;
};

class Load {
 public:
  Load(const Shape& shape, const char* host, int port, size_t connections, size_t pipeline, double rate)
      : shape_(shape),
        layout_(LayoutOf(shape)),
        pipeline_(pipeline),
        rate_(rate),
        epoll_(epoll_create1(0)),
        connections_(connections) {
    size_t count = std::clamp<size_t>(2'000'000 / shape.batch, 64, 20'000);
    for (size_t i = 0; i < count; ++i) requests_.push_back(MakeRequest(shape, i));
    for (size_t i = 0; i < connections; ++i) {
      Connection& c = connections_[i];
      c.fd = Connect(host, port);
      fcntl(c.fd, F_SETFL, O_NONBLOCK);
      c.in.resize(std::max<size_t>(2 * layout_.total, 256 * 1024));
      epoll_event event{EPOLLIN, {.u64 = i}};
      epoll_ctl(epoll_, EPOLL_CTL_ADD, c.fd, &event);
    }
    counts_.resize(64 * 64);
  }

  void Run(double warm_s, double seconds) {
    double begin = Now() + warm_s, end = begin + seconds;
    next_send_ = Now();
    bool measuring = false;
    epoll_event events[64];
    while (true) {
      double now = Now();
      if (!measuring && now >= begin) {
        measuring = true;
        Signal('B');
        done_ = 0;
        begin = Now();
        end = begin + seconds;
        std::fill(counts_.begin(), counts_.end(), 0);
      }
      if (now >= end) break;
      if (rate_ > 0) {
        for (; next_send_ <= now; next_send_ += 1 / rate_) {
          Connection& c = connections_[turn_++ % connections_.size()];
          Queue(c, next_send_);
        }
      }
      for (Connection& c : connections_) {
        if (rate_ <= 0) Refill(c, now);
        Write(c);
      }
      // Never sleeps: waking a sleeping client would be the server's work, and most of it for small answers.
      int n = epoll_wait(epoll_, events, 64, 0);
      for (int i = 0; i < n; ++i) Read(connections_[events[i].data.u64]);
    }
    elapsed_ = Now() - begin;
    Signal('E');
  }

  void Print() {
    double keys = static_cast<double>(done_ * shape_.batch);
    std::printf(
        "{\"requests_s\": %.1f, \"keys_s\": %.1f, \"keys\": %.0f, \"p50_us\": %.2f, \"p99_us\": %.2f, \"p999_us\": "
        "%.2f, \"checked\": %zu, \"wrong\": %zu}\n",
        static_cast<double>(done_) / elapsed_, keys / elapsed_, keys, Percentile(0.5), Percentile(0.99),
        Percentile(0.999), checked_, wrong_);
  }

  size_t wrong() const { return wrong_; }

 private:
  // Tells whoever started us when the measured time begins and ends, and waits for the go.
  void Signal(char mark) {
    std::printf("%c\n", mark);
    std::fflush(stdout);
    char go;
    if (read(0, &go, 1) != 1) std::exit(1);
  }

  void Queue(Connection& c, double at) {
    auto i = static_cast<uint32_t>(random_state % requests_.size());
    Random();
    c.out += requests_[i].bytes;
    c.flying.push_back({i, at});
  }

  // Half a pipeline is let go before it is filled again, so that requests travel together.
  void Refill(Connection& c, double now) {
    if (c.flying.size() > pipeline_ / 2) return;
    while (c.flying.size() < pipeline_) Queue(c, now);
  }

  void Write(Connection& c) {
    while (c.out_at < c.out.size()) {
      ssize_t n = send(c.fd, c.out.data() + c.out_at, c.out.size() - c.out_at, MSG_NOSIGNAL);
      if (n < 0) return;
      c.out_at += static_cast<size_t>(n);
    }
    c.out.clear();
    c.out_at = 0;
  }

  void Read(Connection& c) {
    ssize_t n = recv(c.fd, c.in.data() + c.have, c.in.size() - c.have, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN)) Die("the server closed the connection");
    if (n < 0) return;
    c.have += static_cast<size_t>(n);
    size_t at = 0;
    double now = Now();
    for (; c.have - at >= layout_.total; at += layout_.total) {
      if (c.flying.empty()) Die("an answer to nothing");
      Sent sent = c.flying.front();
      c.flying.pop_front();
      Note((now - sent.at) * 1e9);
      if (++done_ % 64 == 0) Check(requests_[sent.request], sent.request, c.in.data() + at);
    }
    c.have -= at;
    if (at != 0) std::memmove(c.in.data(), c.in.data() + at, c.have);
  }

  void Check(const Request& request, uint64_t id, const char* answer) {
    std::vector<char> row(shape_.row_bytes);
    bool ok = true;
    if (shape_.speaks == Speaks::kWire) ok = std::memcmp(answer + 8, &id, 8) == 0 && answer[37] == 0;
    size_t stride = layout_.before_row + shape_.row_bytes + layout_.after_row;
    for (size_t k = 0; k < shape_.batch; ++k) {
      WriteRow(request.feasigns[k], shape_.row_bytes, row.data());
      ok =
          ok && std::memcmp(row.data(), answer + layout_.head + k * stride + layout_.before_row, shape_.row_bytes) == 0;
    }
    ++checked_;
    wrong_ += ok ? 0 : 1;
  }

  // Buckets of a 64th of a power of two.
  void Note(double ns) {
    auto x = static_cast<uint64_t>(std::max(ns, 64.0));
    int power = 63 - __builtin_clzll(x);
    ++counts_[static_cast<size_t>(power - 6) * 64 + (x >> (power - 6) & 63)];
  }

  double Percentile(double share) const {
    uint64_t total = 0, seen = 0;
    for (uint64_t count : counts_) total += count;
    for (size_t i = 0; i < counts_.size(); ++i) {
      seen += counts_[i];
      if (static_cast<double>(seen) >= share * static_cast<double>(total) && seen != 0)
        return static_cast<double>((64 + i % 64 + 1) << (i / 64)) * 1e-3;
    }
    return 0;
  }

  const Shape shape_;
  const Layout layout_;
  const size_t pipeline_;
  const double rate_;
  const int epoll_;
  std::vector<Connection> connections_;
  std::vector<Request> requests_;
  std::vector<uint64_t> counts_;
  double next_send_ = 0, elapsed_ = 0;
  size_t turn_ = 0, done_ = 0, checked_ = 0, wrong_ = 0;
};

int Fill(const char* host, int port, size_t keys, size_t row_bytes, bool small) {
  int fd = Connect(host, port);
  std::vector<char> row(row_bytes), answers(1 << 16);
  std::string middle = "\r\n$" + std::to_string(row_bytes) + "\r\n";
  size_t waiting = 0;
  std::string out;
  for (size_t i = 0; i < keys; ++i) {
    uint64_t feasign = small ? i : FeasignOf(i);
    WriteRow(feasign, row_bytes, row.data());
    char text[16];
    std::snprintf(text, sizeof text, "%012zu", i);
    out += small ? "*3\r\n$3\r\nSET\r\n$12\r\n" : "*3\r\n$3\r\nSET\r\n$8\r\n";
    out.append(small ? text : reinterpret_cast<const char*>(&feasign), small ? 12 : 8);
    out += middle;
    out.append(row.data(), row_bytes);
    out += "\r\n";
    waiting += 5;  // +OK
    if (out.size() < 60'000 && i + 1 < keys) continue;
    for (size_t at = 0; at < out.size();)
      at += static_cast<size_t>(std::max<ssize_t>(0, send(fd, out.data() + at, out.size() - at, 0)));
    out.clear();
    while (waiting != 0) {
      ssize_t n = recv(fd, answers.data(), std::min(answers.size(), waiting), 0);
      if (n <= 0) Die("fill");
      waiting -= static_cast<size_t>(n);
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 7 && std::strcmp(argv[1], "fill") == 0) {
    return Fill(argv[2], std::atoi(argv[3]), std::strtoull(argv[4], nullptr, 10), std::strtoull(argv[5], nullptr, 10),
                std::strcmp(argv[6], "small") == 0);
  }
  if (argc != 14 || std::strcmp(argv[1], "run") != 0) {
    std::fprintf(stderr, "see the head of kv_load.cc\n");
    return 2;
  }
  std::string speaks = argv[2];
  Shape shape{speaks == "wire"    ? Speaks::kWire
              : speaks == "redis" ? Speaks::kRedis
                                  : Speaks::kRedisDecimal,
              std::strtoull(argv[5], nullptr, 10), std::strtoull(argv[6], nullptr, 10),
              std::strtoull(argv[9], nullptr, 10), std::strcmp(argv[10], "zipf") == 0};
  Load load(shape, argv[3], std::atoi(argv[4]), std::strtoull(argv[7], nullptr, 10),
            std::strtoull(argv[8], nullptr, 10), std::atof(argv[11]));
  load.Run(std::atof(argv[12]), std::atof(argv[13]));
  load.Print();
  return load.wrong() == 0 ? 0 : 1;
}
