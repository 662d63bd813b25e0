#include "ps/standby/follower.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <vector>

#include "util/coding.h"
#include "util/file.h"
#include "util/json_reader.h"
#include "util/status.h"

namespace elasticctr::ps {
namespace {

constexpr auto kRetryPause = std::chrono::milliseconds(500);

struct RemoteFile {
  std::string name;
  uint64_t bytes = 0;
};

[[noreturn]] void Malformed() { throw Error(Code::kCorruption, "the primary sent an invalid answer"); }

}  // namespace

Follower::Follower(const FollowerOptions& options, Shard* shard)
    : options_(options),
      shard_(shard),
      primary_("primary " + options.primary, options.primary, options.job, options.tls),
      thread_([this] { Run(); }) {}

Follower::~Follower() {
  is_stopping_.store(true);
  primary_.Interrupt();  // only speeds it up: every wait is bounded
  thread_.join();
}

std::string Follower::trouble() const {
  std::lock_guard lock(mutex_);
  return trouble_;
}

void Follower::Run() {
  while (!is_stopping_.load()) {
    try {
      primary_.Connect(options_.timeout_ms);
      FollowOnce();
    } catch (const std::exception& error) {
      std::lock_guard lock(mutex_);
      trouble_ = error.what();
    }
    is_connected_.store(false);
    for (int i = 0; i < 10 && !is_stopping_.load(); ++i) std::this_thread::sleep_for(kRetryPause / 10);
  }
}

void Follower::FollowOnce() {
  if (!options_.token.empty()) primary_.Ask(Opcode::kHello, options_.token, options_.timeout_ms);
  primary_.Ask(Opcode::kAttach, options_.attach, options_.timeout_ms);
  uint64_t session = 0;
  CopyState(&session);
  is_connected_.store(true);
  while (!is_stopping_.load()) {
    std::string body(17, '\0');
    body[0] = static_cast<char>(ReplicaVerb::kLog);
    EncodeFixed64(body.data() + 1, session);
    EncodeFixed64(body.data() + 9, place_.load());
    const std::string changes = primary_.Ask(Opcode::kReplicate, body, options_.timeout_ms);
    if (changes.size() < 8) Malformed();
    Replay(changes);
    // True before these changes, and therefore also with them.
    if (changes[0] == 1) is_caught_up_.store(true);
    std::lock_guard lock(mutex_);
    trouble_.clear();
  }
}

void Follower::CopyState(uint64_t* session) {
  is_caught_up_.store(false);  // before the primary stops holding answers for this standby
  const std::string begin(1, static_cast<char>(ReplicaVerb::kBegin));
  const std::string text = primary_.Ask(Opcode::kReplicate, begin, options_.transfer_timeout_ms);
  std::vector<RemoteFile> files;
  uint64_t place = 0, era = 0;
  JsonReader reader(text, 8, "the primary's answer is not valid JSON");
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
      const std::string piece = primary_.Ask(Opcode::kReplicate, body, options_.timeout_ms);
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
