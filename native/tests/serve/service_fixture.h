// Versions with known scores, and a client over real sockets.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cstring>

#include "serve/service.h"
#include "serve/version/version.h"
#include "tests/check.h"

namespace elasticctr::serve {

namespace json = boost::json;

// A row is its feasign.
class Rows : public RowSource {
 public:
  void LookUp(Table* tables, size_t count, uint64_t, Trouble*) const override {
    for (size_t t = 0; t < count; ++t) {
      for (size_t i = 0; i < tables[t].count; ++i) {
        bool is_there = tables[t].feasigns[i] < 1000;
        tables[t].rows[i] = is_there ? static_cast<float>(tables[t].feasigns[i]) : 0;
        tables[t].found[i] = is_there;
        tables[t].hits += is_there;
      }
    }
  }
};

// A score is the sum of the rows; the answer names the version.
class Graph : public DenseGraph {
 public:
  explicit Graph(uint64_t version) : version_(version) {}
  void Run(std::span<const Input> inputs, size_t n, size_t labels, float* out) const override {
    CHECK(inputs.size() == 1 && labels == 1);
    const auto* pooled = static_cast<const float*>(inputs[0].data);
    for (size_t i = 0; i < n; ++i) out[i] = static_cast<float>(version_) * 10'000 + pooled[2 * i] + pooled[2 * i + 1];
  }

 private:
  const uint64_t version_;
};

inline std::shared_ptr<const ServedVersion> MakeVersion(uint64_t version) {
  Plan plan;
  plan.spec.format = TextFormat::kSlot;
  plan.spec.labels = {"click"};
  plan.spec.sparse = {{"user", false, false, 64}, {"item", false, false, 64}};
  plan.sparse.resize(2);
  for (uint32_t i = 0; i < 2; ++i) {
    plan.sparse[i].table = 0;
    plan.sparse[i].max_values = 64;
    plan.sparse[i].pieces = {{0, 1, i}};
  }
  plan.tables = {{"t", 1}};
  plan.labels = {"click"};
  plan.pooled_width = 2;
  plan.Seal();
  return std::make_shared<ServedVersion>("m", version, std::move(plan), std::make_shared<Rows>(),
                                         std::make_unique<Graph>(version), Policy());
}

inline std::vector<Model> ModelsOf(uint64_t version) {
  Model model;
  model.name = "m";
  Variant variant;
  variant.name = "live";
  variant.version = MakeVersion(version);
  model.variants.push_back(std::move(variant));
  std::vector<Model> models;
  models.push_back(std::move(model));
  return models;
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

  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  // One answer, head and body; false: the connection was closed first.
  bool Receive(int* status, std::string* body) {
    size_t end;
    while ((end = have_.find("\r\n\r\n")) == std::string::npos) {
      if (!More()) return false;
    }
    *status = std::stoi(have_.substr(9, 3));
    size_t at = have_.find("Content-Length: ");
    CHECK(at < end);
    size_t length = std::stoul(have_.substr(at + 16));
    while (have_.size() < end + 4 + length) {
      if (!More()) return false;
    }
    *body = have_.substr(end + 4, length);
    head_ = have_.substr(0, end);
    have_.erase(0, end + 4 + length);
    return true;
  }
  const std::string& head() const { return head_; }
  void EndSending() { ::shutdown(fd_, SHUT_WR); }
  std::string ReceiveAll() {
    while (More()) {
    }
    return have_;
  }

 private:
  bool More() {
    char part[65536];
    ssize_t n = ::recv(fd_, part, sizeof part, 0);
    if (n <= 0) return false;
    have_.append(part, static_cast<size_t>(n));
    return true;
  }

  int fd_;
  std::string have_, head_;
};

inline std::string Post(const std::string& path, const std::string& body, const std::string& headers = {}) {
  return "POST " + path + " HTTP/1.1\r\nAuthorization: Bearer a secret\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

inline std::string Get(const std::string& path) {
  return "GET " + path + " HTTP/1.1\r\nAuthorization: Bearer a secret\r\n\r\n";
}

// A request for `count` candidates, and the expected sums of their rows.
inline std::string Ask(uint64_t user, size_t count, std::vector<double>* sums) {
  std::string body = "{\"user\": {\"user\": " + std::to_string(user) + "}, \"candidates\": [";
  for (size_t i = 0; i < count; ++i) {
    body += (i == 0 ? "{\"item\": " : ", {\"item\": ") + std::to_string(i % 900) + "}";
    sums->push_back(static_cast<double>(user + i % 900));
  }
  return Post("/v1/models/m:predict", body + "]}");
}

inline void CheckScores(const std::string& body, const std::vector<double>& sums) {
  json::object answer = json::parse(body).as_object();
  double base = 10'000 * answer["version"].to_number<double>();
  const json::array& scores = answer["scores"].as_array();
  CHECK(scores.size() == sums.size());
  for (size_t i = 0; i < sums.size(); ++i) CHECK(scores[i].to_number<double>() == base + sums[i]);
  CHECK(answer["coverage"].as_object()["asked"] == 1 + sums.size());
}

}  // namespace elasticctr::serve
