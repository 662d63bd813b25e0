#include "ps/standby/follower.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <vector>

#include "net/address.h"
#include "net/connection.h"
#include "net/socket.h"
#include "net/wire.h"
#include "util/coding.h"
#include "util/file.h"
#include "util/json_reader.h"
#include "util/status.h"

namespace elasticctr::ps {
namespace {

constexpr size_t kHeader = net::wire::kHeaderBytes;
constexpr size_t kMaxAnswer = 300u << 20;
constexpr auto kRetryPause = std::chrono::milliseconds(500);

struct RemoteFile {
  std::string name;
  uint64_t bytes = 0;
};

[[noreturn]] void Malformed() { throw Error(Code::kCorruption, "the primary's answer makes no sense"); }

}  // namespace

// One request at a time, each with a deadline.
class Follower::Link {
 public:
  explicit Link(Follower* follower) : options_(follower->options_), follower_(follower) {
    net::CheckAddress(options_.primary);
    try {
      connection_ = std::make_unique<net::Connection>(net::Resolve(options_.primary, true), options_.tls.get(),
                                                      net::HostOf(options_.primary));
      net::TuneConnection(connection_->fd());
      Show(connection_->fd());
      SetDeadline(options_.timeout_ms);
      do {
        Wait(connection_->connect_events());
      } while (!connection_->FinishConnecting());
    } catch (const Error& error) {
      Show(-1);  // before the number is another socket's
      Lost(error.what());
    }
  }
  ~Link() { Show(-1); }
  Link(const Link&) = delete;

  std::string Ask(Opcode opcode, std::string_view body, uint32_t timeout_ms) {
    SetDeadline(timeout_ms);
    net::wire::Header header;
    header.body_bytes = static_cast<uint32_t>(body.size());
    header.id = ++id_;
    header.table = options_.job;
    header.opcode = static_cast<uint8_t>(opcode);
    std::string frame(kHeader, '\0');
    net::wire::EncodeHeader(reinterpret_cast<uint8_t*>(frame.data()), header);
    frame += body;
    uint8_t head[kHeader];
    std::string text;
    net::wire::Header answer;
    try {
      Send(frame);
      Receive(head, sizeof head);
      if (!net::wire::HasMagic(head)) Malformed();
      answer = net::wire::DecodeHeader(head);
      if (answer.body_bytes > kMaxAnswer || answer.id != id_) Malformed();
      text.resize(answer.body_bytes);
      Receive(text.data(), text.size());
    } catch (const Error& error) {
      if (error.code() == Code::kUnavailable) Lost(error.what());
      throw;
    }
    if (answer.status != 0) throw Error(static_cast<Code>(answer.status), options_.primary + ": " + text);
    return text;
  }

 private:
  void Show(int fd) {
    std::lock_guard lock(follower_->mutex_);
    follower_->fd_ = fd;
  }
  [[noreturn]] void Lost(const std::string& why) const {
    throw Error(Code::kUnavailable, "primary " + options_.primary + ": " + why);
  }
  void SetDeadline(uint32_t timeout_ms) { deadline_ns_ = net::NowNs() + uint64_t{timeout_ms} * 1'000'000; }
  void Wait(short events) {
    const uint64_t now = net::NowNs();
    pollfd one{connection_->fd(), events, 0};
    const uint64_t left_ms = now < deadline_ns_ ? (deadline_ns_ - now) / 1'000'000 + 1 : 0;
    const int ready = now < deadline_ns_ ? ::poll(&one, 1, static_cast<int>(left_ms)) : 0;
    if (ready == 0) throw Error(Code::kUnavailable, "no answer in time");
  }
  void Send(const std::string& frame) {
    for (size_t sent = 0; sent < frame.size() || connection_->has_unsent();) {
      const iovec rest{const_cast<char*>(frame.data()) + sent, frame.size() - sent};
      if (rest.iov_len != 0) {
        sent += connection_->Send(&rest, 1);
      } else {
        connection_->Flush();
      }
      if (sent < frame.size() || connection_->has_unsent()) Wait(POLLOUT);
    }
  }
  void Receive(void* to, size_t size) {
    auto* at = static_cast<uint8_t*>(to);
    while (size != 0) {
      iovec rest{at, size};
      const size_t n = connection_->Receive(&rest, 1);
      if (n == 0) Wait(POLLIN);
      at += n;
      size -= n;
    }
  }

  const FollowerOptions& options_;
  Follower* const follower_;
  std::unique_ptr<net::Connection> connection_;
  uint64_t deadline_ns_ = 0;
  uint64_t id_ = 0;
};

Follower::Follower(const FollowerOptions& options, Shard* shard)
    : options_(options), shard_(shard), thread_([this] { Run(); }) {}

Follower::~Follower() {
  is_stopping_.store(true);
  // The thread owns the socket; shutting it down ends what it waits for. A wait is bounded anyway.
  {
    std::lock_guard lock(mutex_);
    if (fd_ >= 0) ::shutdown(fd_, SHUT_RDWR);
  }
  thread_.join();
}

std::string Follower::trouble() const {
  std::lock_guard lock(mutex_);
  return trouble_;
}

void Follower::Run() {
  while (!is_stopping_.load()) {
    try {
      Link link(this);
      FollowOnce(&link);
    } catch (const std::exception& error) {
      std::lock_guard lock(mutex_);
      trouble_ = error.what();
    }
    is_connected_.store(false);
    for (int i = 0; i < 10 && !is_stopping_.load(); ++i) std::this_thread::sleep_for(kRetryPause / 10);
  }
}

void Follower::FollowOnce(Link* link) {
  if (!options_.token.empty()) link->Ask(Opcode::kHello, options_.token, options_.timeout_ms);
  link->Ask(Opcode::kAttach, options_.attach, options_.timeout_ms);
  uint64_t session = 0;
  CopyState(link, &session);
  is_connected_.store(true);
  while (!is_stopping_.load()) {
    std::string body(17, '\0');
    body[0] = static_cast<char>(ReplicaVerb::kLog);
    EncodeFixed64(body.data() + 1, session);
    EncodeFixed64(body.data() + 9, place_.load());
    const std::string changes = link->Ask(Opcode::kReplicate, body, options_.timeout_ms);
    if (changes.size() < 8) Malformed();
    Replay(changes);
    // Said of the moment before these changes; with them it holds all the more.
    if (changes[0] == 1) is_caught_up_.store(true);
    std::lock_guard lock(mutex_);
    trouble_.clear();
  }
}

void Follower::CopyState(Link* link, uint64_t* session) {
  is_caught_up_.store(false);  // before the primary stops to hold answers for this standby
  const std::string begin(1, static_cast<char>(ReplicaVerb::kBegin));
  const std::string text = link->Ask(Opcode::kReplicate, begin, options_.transfer_timeout_ms);
  std::vector<RemoteFile> files;
  uint64_t place = 0, era = 0;
  JsonReader reader(text, 8, "the primary's answer is no JSON");
  std::string_view key;
  for (reader.BeginObject(); reader.NextKey(&key);) {
    if (key == "session") {
      *session = reader.Uint64();
    } else if (key == "place") {
      place = reader.Uint64();
    } else if (key == "era") {
      era = reader.Uint64();
    } else if (key == "files") {
      for (reader.BeginObject(); reader.NextKey(&key);) {
        const std::string name(key);
        files.push_back({name, reader.Uint64()});
      }
    } else {
      reader.Skip();
    }
  }
  const std::filesystem::path directory = std::filesystem::path(options_.scratch) /
                                          ("standby-" + std::to_string(::getpid()) + "-" + std::to_string(*session));
  std::filesystem::create_directories(directory);
  const struct Remove {
    const std::filesystem::path& path;
    ~Remove() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  } remove{directory};
  for (size_t i = 0; i < files.size(); ++i) {
    if (files[i].name.find('/') != std::string::npos || files[i].name.starts_with(".")) Malformed();
    const File file = File::Create((directory / files[i].name).string());
    for (uint64_t offset = 0; offset < files[i].bytes;) {
      if (is_stopping_.load()) return;
      std::string body(21, '\0');
      body[0] = static_cast<char>(ReplicaVerb::kRead);
      EncodeFixed64(body.data() + 1, *session);
      EncodeFixed32(body.data() + 9, static_cast<uint32_t>(i));
      EncodeFixed64(body.data() + 13, offset);
      const std::string piece = link->Ask(Opcode::kReplicate, body, options_.timeout_ms);
      if (piece.empty() || piece.size() > files[i].bytes - offset) Malformed();
      file.Write(piece.data(), piece.size(), offset);
      offset += piece.size();
    }
  }
  shard_->LoadFromPrimary(directory.string(), era);
  place_.store(place);
}

void Follower::Replay(const std::string& changes) {
  constexpr size_t kEntryHead = 16;
  const auto* at = reinterpret_cast<const uint8_t*>(changes.data()) + 8;
  const uint8_t* const end = reinterpret_cast<const uint8_t*>(changes.data()) + changes.size();
  while (at != end) {
    if (static_cast<size_t>(end - at) < kEntryHead) Malformed();
    const uint64_t place = DecodeFixed64(at);
    const uint32_t opcode = DecodeFixed32(at + 8), bytes = DecodeFixed32(at + 12);
    at += kEntryHead;
    if (bytes > static_cast<size_t>(end - at) || place != place_.load() + 1) Malformed();
    shard_->Replay(static_cast<Opcode>(opcode), {at, bytes});
    place_.store(place);
    at += bytes;
  }
}

}  // namespace elasticctr::ps
