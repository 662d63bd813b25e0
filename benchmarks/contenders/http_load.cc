// Load on an HTTP/1.1 server, from one thread: keep-alive connections, epoll, never sleeping. Bodies come from a file,
// one per line, and are asked for in turn.
//
// http_load HOST PORT PATH BODIES CONNECTIONS RATE WARM_S SECONDS [DEADLINE_MS]
//   CONNECTIONS  one request under way on each
//   RATE         requests per second in all, due at fixed times: what finds no free connection waits, and its latency
//                counts from when it was due, so that a server that stalls is not flattered; 0: as many as are answered
//   DEADLINE_MS  answers of 200 within it are counted as in_time; refusals (429) get a p99 of their own
// Prints B when the measured time begins and E when it ends, each time waiting for a byte on its input, then one line
// of JSON. Answers other than 200, and connections that end early, are counted as errors and do not count as requests.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace {

double Now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::exit(1);
}

// One answer, as far as it has come.
class Answer {
 public:
  enum class State { kPartial, kWhole, kBad };

  void Reset() { *this = Answer(); }

  // Looks at all bytes received so far; `size` is then the answer's length.
  State Look(std::string_view bytes) {
    if (body_at_ == 0) {
      size_t end = bytes.find("\r\n\r\n");
      if (end == std::string_view::npos) return State::kPartial;
      if (bytes.size() < 12 || bytes.substr(0, 7) != "HTTP/1.") return State::kBad;
      status = std::atoi(bytes.data() + 9);
      body_at_ = end + 4;
      ReadHeaders(bytes.substr(0, end + 2));
      chunk_at_ = body_at_;
    }
    if (chunked_) return LookAtChunks(bytes);
    if (length_ < 0) return State::kBad;
    size = body_at_ + static_cast<size_t>(length_);
    return bytes.size() >= size ? State::kWhole : State::kPartial;
  }

  int status = 0;
  size_t size = 0;
  bool closes = false;

 private:
  void ReadHeaders(std::string_view head) {
    size_t at = head.find("\r\n") + 2;
    while (at < head.size()) {
      size_t end = head.find("\r\n", at);
      std::string_view line = head.substr(at, end - at);
      at = end + 2;
      size_t colon = line.find(':');
      if (colon == std::string_view::npos) continue;
      std::string value(line.substr(colon + 1));
      value.erase(0, value.find_first_not_of(' '));
      auto is = [&](const char* name) {
        return colon == std::strlen(name) && strncasecmp(line.data(), name, colon) == 0;
      };
      if (is("content-length")) length_ = std::atoll(value.c_str());
      if (is("transfer-encoding")) chunked_ = strcasecmp(value.c_str(), "chunked") == 0;
      if (is("connection")) closes = strcasecmp(value.c_str(), "close") == 0;
    }
  }

  State LookAtChunks(std::string_view bytes) {
    while (true) {
      size_t end = bytes.find("\r\n", chunk_at_);
      if (end == std::string_view::npos) return State::kPartial;
      size_t length = std::strtoull(std::string(bytes.substr(chunk_at_, end - chunk_at_)).c_str(), nullptr, 16);
      if (bytes.size() < end + 2 + length + 2) return State::kPartial;
      chunk_at_ = end + 2 + length + 2;
      if (length == 0) {
        size = chunk_at_;
        return State::kWhole;
      }
    }
  }

  size_t body_at_ = 0, chunk_at_ = 0;
  long long length_ = -1;
  bool chunked_ = false;
};

struct Connection {
  int fd = -1;
  const std::string* out = nullptr;
  size_t out_at = 0;
  std::vector<char> in;
  size_t have = 0;
  Answer answer;
  bool busy = false;
  double due = 0;
};

class Load {
 public:
  Load(const char* host, int port, const std::string& path, const char* bodies, size_t connections, double rate,
       double deadline_s)
      : host_(host),
        port_(port),
        rate_(rate),
        deadline_s_(deadline_s),
        epoll_(epoll_create1(0)),
        connections_(connections) {
    std::ifstream file(bodies);
    for (std::string line; std::getline(file, line);) {
      requests_.push_back("POST " + path + " HTTP/1.1\r\nHost: " + host + ":" + std::to_string(port) +
                          "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(line.size()) +
                          "\r\n\r\n" + line);
    }
    if (requests_.empty()) Die(bodies);
    for (size_t i = 0; i < connections; ++i) {
      connections_[i].in.resize(16 * 1024);
      Open(i);
      free_.push_back(i);
    }
    counts_.resize(64 * 64);
  }

  void Run(double warm_s, double seconds) {
    double begin = Now() + warm_s, end = begin + seconds;
    next_due_ = Now();
    bool measuring = false;
    epoll_event events[64];
    while (true) {
      double now = Now();
      if (!measuring && now >= begin) {
        measuring = true;
        Signal('B');
        done_ = in_time_ = 0;
        refused_us_.clear();
        errors_.clear();
        std::fill(counts_.begin(), counts_.end(), 0);
        begin = now = Now();
        end = begin + seconds;
        if (rate_ > 0 && waiting_.empty()) next_due_ = std::max(next_due_, now);
      }
      if (now >= end) break;
      if (rate_ > 0) {
        for (; next_due_ <= now; next_due_ += 1 / rate_) waiting_.push_back(next_due_);
        while (!waiting_.empty() && !free_.empty()) {
          Start(waiting_.front());
          waiting_.pop_front();
        }
      } else {
        while (!free_.empty()) Start(now);
      }
      // Never sleeps: waking a sleeping client would be the server's work.
      int n = epoll_wait(epoll_, events, 64, 0);
      for (int i = 0; i < n; ++i) {
        size_t index = events[i].data.u64;
        if (events[i].events & EPOLLOUT) Write(index);
        if (events[i].events & ~static_cast<uint32_t>(EPOLLOUT)) Read(index);
      }
    }
    elapsed_ = Now() - begin;
    // What was due and is still waited for counts as late as it is by now.
    if (rate_ > 0) {
      double now = Now();
      for (double due : waiting_) Note((now - due) * 1e9);
      for (const Connection& c : connections_)
        if (c.busy) Note((now - c.due) * 1e9);
    }
    Signal('E');
  }

  void Print() {
    std::string errors;
    for (const auto& [what, count] : errors_)
      errors += (errors.empty() ? "\"" : ", \"") + what + "\": " + std::to_string(count);
    std::printf(
        "{\"requests\": %zu, \"requests_s\": %.2f, \"p50_us\": %.2f, \"p99_us\": %.2f, \"p999_us\": %.2f, "
        "\"unanswered\": %zu, \"in_time_s\": %.2f, \"refused\": %zu, \"refused_p99_us\": %.2f, \"errors\": {%s}}\n",
        done_, static_cast<double>(done_) / elapsed_, Percentile(0.5), Percentile(0.99), Percentile(0.999),
        waiting_.size(), static_cast<double>(in_time_) / elapsed_, refused_us_.size(), RefusedP99(), errors.c_str());
  }

 private:
  // Tells whoever started us when the measured time begins and ends, and waits for the go.
  void Signal(char mark) {
    std::printf("%c\n", mark);
    std::fflush(stdout);
    char go;
    if (read(0, &go, 1) != 1) std::exit(1);
  }

  void Open(size_t index) {
    Connection& c = connections_[index];
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port_));
    inet_pton(AF_INET, host_, &address.sin_addr);
    c.fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c.fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) Die("connect");
    int one = 1;
    setsockopt(c.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(c.fd, F_SETFL, O_NONBLOCK);
    epoll_event event{EPOLLIN, {.u64 = index}};
    epoll_ctl(epoll_, EPOLL_CTL_ADD, c.fd, &event);
  }

  void Start(double due) {
    size_t index = free_.front();
    free_.pop_front();
    Connection& c = connections_[index];
    c.out = &requests_[turn_++ % requests_.size()];
    c.out_at = c.have = 0;
    c.answer.Reset();
    c.busy = true;
    c.due = due;
    Write(index);
  }

  void Write(size_t index) {
    Connection& c = connections_[index];
    if (c.out == nullptr) return;
    while (c.out_at < c.out->size()) {
      ssize_t n = send(c.fd, c.out->data() + c.out_at, c.out->size() - c.out_at, MSG_NOSIGNAL);
      if (n < 0 && errno != EAGAIN) return Fail(index, "cut");
      if (n < 0) return Watch(index, EPOLLIN | EPOLLOUT);
      c.out_at += static_cast<size_t>(n);
    }
    c.out = nullptr;
    if (watches_out_) Watch(index, EPOLLIN);
  }

  void Watch(size_t index, uint32_t events) {
    watches_out_ = watches_out_ || (events & EPOLLOUT) != 0;
    epoll_event event{events, {.u64 = index}};
    epoll_ctl(epoll_, EPOLL_CTL_MOD, connections_[index].fd, &event);
  }

  void Read(size_t index) {
    Connection& c = connections_[index];
    if (c.have == c.in.size()) c.in.resize(2 * c.in.size());
    ssize_t n = recv(c.fd, c.in.data() + c.have, c.in.size() - c.have, 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) return Fail(index, "cut");
    c.have += static_cast<size_t>(n);
    switch (c.answer.Look(std::string_view(c.in.data(), c.have))) {
      case Answer::State::kPartial: return;
      case Answer::State::kBad: return Fail(index, "not HTTP");
      case Answer::State::kWhole: break;
    }
    if (c.answer.status == 200) {
      const double took_s = Now() - c.due;
      Note(took_s * 1e9);
      ++done_;
      if (took_s <= deadline_s_) ++in_time_;
    } else {
      if (c.answer.status == 429) refused_us_.push_back((Now() - c.due) * 1e6);
      ++errors_[std::to_string(c.answer.status)];
    }
    if (c.answer.closes) Reopen(index);
    c.busy = false;
    free_.push_back(index);
  }

  void Fail(size_t index, const char* what) {
    Connection& c = connections_[index];
    Reopen(index);
    c.out = nullptr;
    if (!c.busy) return;  // an idle connection that the server closed
    ++errors_[what];
    c.busy = false;
    free_.push_back(index);
  }

  void Reopen(size_t index) {
    close(connections_[index].fd);
    Open(index);
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

  double RefusedP99() {
    if (refused_us_.empty()) return 0;
    auto at = refused_us_.begin() + static_cast<ptrdiff_t>(static_cast<double>(refused_us_.size() - 1) * 0.99);
    std::nth_element(refused_us_.begin(), at, refused_us_.end());
    return *at;
  }

  const char* host_;
  const int port_;
  const double rate_;
  const double deadline_s_;
  const int epoll_;
  std::vector<Connection> connections_;
  std::vector<std::string> requests_;
  std::deque<size_t> free_;
  std::deque<double> waiting_;  // when they were due
  std::vector<uint64_t> counts_;
  std::map<std::string, size_t> errors_;
  double next_due_ = 0, elapsed_ = 0;
  size_t turn_ = 0, done_ = 0, in_time_ = 0;
  std::vector<double> refused_us_;
  bool watches_out_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 9 && argc != 10) {
    std::fprintf(stderr, "see the head of http_load.cc\n");
    return 2;
  }
  const double deadline_s = argc == 10 ? std::atof(argv[9]) / 1e3 : 0;
  Load load(argv[1], std::atoi(argv[2]), argv[3], argv[4], std::strtoull(argv[5], nullptr, 10), std::atof(argv[6]),
            deadline_s);
  load.Run(std::atof(argv[7]), std::atof(argv[8]));
  load.Print();
  return 0;
}
