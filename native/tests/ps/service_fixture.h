// A pserver, and a client that sends it single frames.
#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>

#include "net/socket.h"
#include "net/wire.h"
#include "ps/server/service.h"
#include "tests/ps/fixture.h"
#include "util/coding.h"

namespace elasticctr::ps {

using net::wire::Header;
using net::wire::kHeaderBytes;
inline constexpr uint64_t kJob = 99;

inline ServiceOptions MakeOptions(const std::string& token = "") {
  ServiceOptions options;
  options.net.ports = {0};
  options.net.threads = 2;
  options.net.max_buffered_bytes = 64u << 20;
  options.net.limits.request_timeout_s = 1;
  options.shard = MakeShardSettings();
  options.token = token;
  options.job = kJob;
  options.identity = "text";
  options.digest = "digest";
  options.build = "b1";
  options.strategy = "sync";
  return options;
}

struct Answer {
  Header header;
  std::string body;
  bool is_closed = false;
};

class Client {
 public:
  explicit Client(const Service& service) {
    fd_ = net::Fd(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(service.ports()[0]);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    const timeval time{10, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  }
  static std::string Frame(Opcode opcode, std::string_view body, uint64_t version = 0, uint64_t job = kJob) {
    Header header;
    header.body_bytes = static_cast<uint32_t>(body.size());
    header.id = 1234;
    header.version = version;
    header.table = job;
    header.opcode = static_cast<uint8_t>(opcode);
    std::string frame(kHeaderBytes, '\0');
    net::wire::EncodeHeader(reinterpret_cast<uint8_t*>(frame.data()), header);
    return frame.append(body);
  }
  static std::string Frame(Opcode opcode, const std::vector<uint8_t>& body, uint64_t version = 0) {
    return Frame(opcode, std::string_view(reinterpret_cast<const char*>(body.data()), body.size()), version);
  }
  void SendRaw(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
  }
  Answer Read() {
    Answer answer;
    uint8_t head[kHeaderBytes];
    if (!Receive(head, sizeof head)) {
      answer.is_closed = true;
      return answer;
    }
    CHECK(net::wire::HasMagic(head));
    answer.header = net::wire::DecodeHeader(head);
    answer.body.resize(answer.header.body_bytes);
    CHECK(Receive(answer.body.data(), answer.body.size()));
    return answer;
  }
  Answer Ask(const std::string& frame) {
    SendRaw(frame);
    return Read();
  }
  Answer Control(const std::string& json, uint64_t incarnation = 0) {
    return Ask(Frame(Opcode::kControl, json, incarnation));
  }
  bool HasAnswer(int wait_ms) {
    pollfd waiting{fd_.get(), POLLIN, 0};
    char byte;
    return ::poll(&waiting, 1, wait_ms) > 0 && ::recv(fd_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
  }

 private:
  bool Receive(void* to, size_t size) {
    auto* at = static_cast<uint8_t*>(to);
    while (size != 0) {
      const ssize_t n = ::recv(fd_.get(), at, size, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      at += n;
      size -= static_cast<size_t>(n);
    }
    return true;
  }

  net::Fd fd_;
};

inline int NumberOf(Code code) { return static_cast<int>(code); }

}  // namespace elasticctr::ps
