// A pserver made of a map and blocking sockets, for client tests: rows step by minus their gradients, cursors are kept,
// and tests can make it hang up, send invalid bytes or stay silent.
#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "net/socket.h"
#include "net/wire.h"
#include "ps/wire/frames.h"
#include "util/hash.h"

namespace elasticctr::ps {

// The weight of a feasign without a push.
inline float FakeWeight(uint64_t feasign, size_t table, size_t column) {
  return static_cast<float>(Mix64(feasign + table * 31 + column * 7) % 1000) / 1000.0f;
}

class FakePserver {
 public:
  struct Head {
    PushKind kind;
    uint64_t chunk;
    uint32_t from, to, weight;
  };
  struct Answer {
    uint8_t status = 0;
    uint16_t detail = 0;
    uint64_t version = 0;
    std::string body;
    bool hang_up = false;  // instead of answering
  };

  FakePserver(uint32_t shard, uint32_t shards, std::vector<TableShape> shapes, uint64_t dense_floats)
      : shard_(shard), shards_(shards), shapes_(std::move(shapes)), rows_(shapes_.size()) {
    const Share share = ShareOf(shard, shards, dense_floats, false);
    dense_.resize(share.last_float - share.first_float);
    dense_floats_ = dense_floats;
    Listen(0);
  }
  ~FakePserver() { Stop(); }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  void Stop() {
    if (is_stopped_.exchange(true)) return;
    acceptor_.join();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    listener_.Close();
  }
  void Restart() {
    is_stopped_ = false;
    Listen(port_);
  }

  // Called before a frame is processed and before its answer is sent; may change the answer or hang up.
  std::function<void(Opcode, Answer*)> before, after;
  std::function<void(std::string*)> garble;  // the bytes of an answer
  std::string token;

  std::mutex mutex;  // guards the members below
  std::vector<Head> applied;
  std::map<uint64_t, uint32_t> cursors;
  std::map<uint64_t, uint64_t> occurrences;
  uint64_t silent = 0;
  uint64_t era = 0;  // pulls and pushes of another are refused

  std::vector<float> Row(size_t table, uint64_t feasign) {
    const auto found = rows_[table].find(feasign);
    if (found != rows_[table].end()) return found->second;
    std::vector<float> row;
    for (size_t j = 0; j < shapes_[table].dim; ++j) row.push_back(FakeWeight(feasign, table, j));
    return row;
  }
  void SetDense(std::vector<float> values) {
    std::lock_guard lock(mutex);
    dense_ = std::move(values);
    ++dense_version_;
  }
  uint64_t misplaced = 0;

 private:
  void Listen(uint16_t port) {
    listener_ = net::ListenTcp("127.0.0.1", port);
    port_ = net::PortOf(listener_);
    acceptor_ = std::thread([this] {
      while (!is_stopped_) {
        pollfd wanted{listener_.get(), POLLIN, 0};
        if (poll(&wanted, 1, 20) <= 0) continue;
        const int fd = accept(listener_.get(), nullptr, nullptr);
        if (fd >= 0) threads_.emplace_back([this, fd] { Serve(net::Fd(fd)); });
      }
    });
  }

  bool ReadAll(int fd, void* out, size_t size) {
    auto* at = static_cast<uint8_t*>(out);
    while (size > 0) {
      pollfd wanted{fd, POLLIN, 0};
      if (is_stopped_) return false;
      if (poll(&wanted, 1, 20) <= 0) continue;
      const ssize_t got = recv(fd, at, size, 0);
      if (got <= 0) return false;
      at += got;
      size -= static_cast<size_t>(got);
    }
    return true;
  }

  void Serve(net::Fd fd) {
    uint8_t head[net::wire::kHeaderBytes];
    std::string body;
    while (ReadAll(fd.get(), head, sizeof head)) {
      net::wire::Header header = net::wire::DecodeHeader(head);
      body.resize(header.body_bytes);
      if (!net::wire::HasMagic(head) || !ReadAll(fd.get(), body.data(), body.size())) return;
      Answer answer;
      const auto opcode = static_cast<Opcode>(header.opcode);
      {
        std::lock_guard lock(mutex);
        if (before) before(opcode, &answer);
        const bool is_work = opcode == Opcode::kPull || opcode == Opcode::kPush;
        if (is_work && header.version < era) answer = {15, static_cast<uint16_t>(Detail::kOldEra), era, "over", false};
        if (is_work && header.version > era) answer = {17, 0, 0, "not loaded yet", false};
        if (!answer.hang_up && answer.status == 0) Do(opcode, body, &answer);
        if (after) after(opcode, &answer);
      }
      if (answer.hang_up) return;
      header.status = answer.status;
      header.detail = answer.detail;
      header.version = answer.version;
      header.body_bytes = static_cast<uint32_t>(answer.body.size());
      std::string bytes(sizeof head, '\0');
      net::wire::EncodeHeader(reinterpret_cast<uint8_t*>(bytes.data()), header);
      bytes += answer.body;
      if (garble) garble(&bytes);
      for (size_t sent = 0; sent < bytes.size();) {
        const ssize_t n = send(fd.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
        if (n <= 0) return;
        sent += static_cast<size_t>(n);
      }
    }
  }

  template <typename T>
  static void Put(std::string* out, T value) {
    out->append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  void Do(Opcode opcode, const std::string& body, Answer* answer) {
    const std::span bytes(reinterpret_cast<const uint8_t*>(body.data()), body.size());
    switch (opcode) {
      case Opcode::kHello:
        if (body != token) *answer = {16, 0, 0, "wrong token", false};
        return;
      case Opcode::kAttach:
        answer->body = "{\"shard\": " + std::to_string(shard_) + ", \"shards\": " + std::to_string(shards_) +
                       ", \"dense_floats\": " + std::to_string(dense_floats_) + ", \"tables\": [1, {}], \"step\": 0}";
        return;
      case Opcode::kPull: return Pull(ReadPull(bytes, shapes_), answer);
      case Opcode::kPush: return Push(ReadPush(bytes, shapes_), answer);
      case Opcode::kCursors:
        for (size_t i = 0; i + 8 <= body.size(); i += 8) Put(&answer->body, cursors[DecodeFixed64(body.data() + i)]);
        return;
      case Opcode::kSetDense: {
        const bool takes = dense_version_ == 0;
        if (takes) std::memcpy(dense_.data(), body.data() + 8, body.size() - 8);
        dense_version_ += takes;
        answer->body = std::string(1, takes ? '\1' : '\0');
        return;
      }
      default: answer->body = body;
    }
  }

  void Tail(bool has_dense, Answer* answer) const {
    Put(&answer->body, uint64_t{applied.size()});
    Put(&answer->body, dense_version_);
    Put(&answer->body, static_cast<uint32_t>(has_dense ? dense_.size() : 0));
    Put(&answer->body, uint32_t{0});
  }
  void PutDense(bool has_dense, Answer* answer) const {
    if (has_dense) answer->body.append(reinterpret_cast<const char*>(dense_.data()), dense_.size() * sizeof(float));
  }

  void Pull(const PullRequest& pull, Answer* answer) {
    const bool has_dense = (pull.flags & kPullDense) != 0 && dense_version_ > pull.dense_version;
    Tail(has_dense, answer);
    for (const PullTable& table : pull.tables) {
      for (size_t i = 0; i < table.count; ++i) {
        const uint64_t feasign = DecodeFixed64(table.feasigns + i);
        misplaced += ShardOf(feasign, shards_) != shard_;
        if (table.occurrences != nullptr) occurrences[feasign] += DecodeFixed32(table.occurrences + i);
        const std::vector<float> row = Row(table.number, feasign);
        std::string encoded(EncodedBytes(pull.encoding, row.size()), '\0');
        EncodeRows(pull.encoding, row.data(), 1, row.size(), reinterpret_cast<uint8_t*>(encoded.data()));
        answer->body += encoded;
      }
    }
    PutDense(has_dense, answer);
  }

  void Push(const PushRequest& push, Answer* answer) {
    PushOutcome outcome = PushOutcome::kApplied;
    uint32_t& cursor = cursors[push.chunk];
    if (push.kind != PushKind::kEmpty && push.to <= cursor) {
      outcome = PushOutcome::kBefore;
    } else if (push.kind != PushKind::kEmpty && push.from != cursor) {
      *answer = {15, static_cast<uint16_t>(Detail::kCursor), cursor, "not the next batch", false};
      return;
    } else {
      Apply(push);
      cursor = push.kind == PushKind::kEmpty ? cursor : push.to;
      applied.push_back({push.kind, push.chunk, push.from, push.to, push.weight});
    }
    Put(&answer->body, outcome);
    answer->body.append(7, '\0');
    const bool has_dense = (push.flags & kPushWantsDense) != 0;
    Tail(has_dense, answer);
    PutDense(has_dense, answer);
  }

  void Apply(const PushRequest& push) {
    for (const PushTable& table : push.tables) {
      const size_t dim = shapes_[table.number].dim, row_bytes = EncodedBytes(push.encoding, dim);
      std::vector<float> gradient(dim);
      for (size_t i = 0; i < table.count; ++i) {
        const uint64_t feasign = DecodeFixed64(table.feasigns + i);
        misplaced += ShardOf(feasign, shards_) != shard_;
        DecodeRows(push.encoding, table.gradients + i * row_bytes, 1, dim, gradient.data());
        std::vector<float> row = Row(table.number, feasign);
        for (size_t j = 0; j < dim; ++j) row[j] -= gradient[j];
        rows_[table.number][feasign] = std::move(row);
      }
    }
    if (push.dense_floats > 0) {
      std::vector<float> gradient(push.dense_floats);
      DecodeRows(push.dense_encoding, push.dense, 1, gradient.size(), gradient.data());
      for (size_t j = 0; j < gradient.size(); ++j) dense_[j] -= gradient[j];
      ++dense_version_;
    }
  }

  const uint32_t shard_, shards_;
  const std::vector<TableShape> shapes_;
  uint64_t dense_floats_ = 0;
  std::vector<std::unordered_map<uint64_t, std::vector<float>>> rows_;
  std::vector<float> dense_;
  uint64_t dense_version_ = 0;
  net::Fd listener_;
  uint16_t port_ = 0;
  std::atomic<bool> is_stopped_{false};
  std::thread acceptor_;
  std::vector<std::thread> threads_;
};

}  // namespace elasticctr::ps
