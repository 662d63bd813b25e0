// A prediction server for bRPC, a client, and known scores.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "serve/brpc/frame.h"
#include "serve/brpc/session.h"
#include "serve/service.h"
#include "serve/version/version.h"
#include "tests/check.h"
#include "util/protobuf.h"

namespace elasticctr::serve::brpc {

using protobuf::Reader;
using protobuf::Writer;

inline constexpr char kCtr[] = "baidu.paddle_serving.predictor.ctr_prediction.CTRPredictionService";
inline constexpr uint64_t kSlow = 500;  // a row that is found slowly

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

// A score is the sum of rows and dense values, divided by a thousand.
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

inline std::vector<Model> MakeModels() {
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

inline std::string Frame(const std::string& meta, const std::string& message) {
  std::string out = "PRPC";
  for (size_t size : {meta.size() + message.size(), meta.size()}) {
    for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<char>(size >> shift));
  }
  return out + meta + message;
}

inline std::string MetaOf(const Call& call) {
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

inline std::string Instance(uint64_t user, uint64_t item, float age) {
  std::string message;
  Writer writer(&message);
  size_t instance = writer.Begin(1);
  const int64_t ids[] = {static_cast<int64_t>(user), static_cast<int64_t>(item)};
  writer.PackedInt64(1, ids, 2);
  writer.PackedFloat(2, &age, 1);
  writer.End(instance);
  return message;
}

inline std::string Ask(const Call& call, uint64_t user) { return Frame(MetaOf(call), Instance(user, 1, 0.5f)); }
inline float ScoreOf(uint64_t user) { return static_cast<float>(user) / 1000 + 0.001f + 0.0005f; }

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

  // False: the connection was closed.
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

}  // namespace elasticctr::serve::brpc
