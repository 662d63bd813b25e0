// A service's part in a hot standby, on either side.
#include <unistd.h>

#include <atomic>
#include <filesystem>

#include "ps/server/refusal.h"
#include "ps/server/service.h"
#include "util/json_text.h"

namespace elasticctr::ps {
namespace {

constexpr uint64_t kPieceBytes = 4u << 20;

std::string AttachText(const ServiceOptions& options) {
  std::string text = "{\"role\": \"standby\", \"build\": ";
  AppendJsonString(&text, options.build);
  AppendJsonString(&(text += ", \"identity\": "), options.identity);
  AppendJsonString(&(text += ", \"strategy\": "), options.strategy);
  return text + "}";
}

}  // namespace

std::string Service::scratch() const {
  return options_.scratch.empty() ? std::filesystem::temp_directory_path().string() : options_.scratch;
}

void Service::Follow(const std::string& primary) {
  if (is_primary_.load() && is_ready_.load()) {
    throw Error(Code::kFailedPrecondition, "this pserver is a primary; only a standby can follow one");
  }
  is_primary_.store(false);
  FollowerOptions options;
  options.primary = primary;
  options.token = options_.token;
  options.job = options_.job;
  options.attach = AttachText(options_);
  options.scratch = scratch();
  options.tls = tls_;
  std::lock_guard lock(standby_mutex_);
  follower_.reset();
  follower_ = std::make_unique<Follower>(options, shard_.get());
}

void Service::Promote() {
  std::unique_lock lock(standby_mutex_);
  if (is_primary_.load()) return;
  if (follower_ == nullptr || !follower_->is_caught_up()) {
    throw Error(Code::kFailedPrecondition,
                "this standby has not caught up with its primary" +
                    (follower_ == nullptr || follower_->trouble().empty() ? "" : ": " + follower_->trouble()) +
                    "; go back to a checkpoint");
  }
  follower_.reset();  // waits for its current work
  lock.unlock();
  shard_->BecomePrimary();
  is_primary_.store(true);
  is_ready_.store(true);
}

std::string Service::BeginTransfer(std::atomic<uint64_t>* session) {
  static std::atomic<uint64_t> counter{0};
  const std::filesystem::path directory =
      std::filesystem::path(scratch()) /
      ("primary-" + std::to_string(::getpid()) + "-" + std::to_string(counter.fetch_add(1)));
  std::filesystem::create_directories(directory);
  const struct Remove {
    const std::filesystem::path& path;
    ~Remove() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  } remove{directory};
  Replica::Start start;
  uint64_t era = 0;
  shard_->SaveForStandby(directory.string(), [&] {
    start = replica_->Begin();
    era = shard_->era();
    session->store(start.session);
  });
  auto transfer = std::make_shared<Transfer>();
  transfer->session = start.session;
  std::string text = "{\"session\": " + std::to_string(start.session) + ", \"place\": " + std::to_string(start.place) +
                     ", \"era\": " + std::to_string(era) + ", \"files\": {";
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (!transfer->files.empty()) text += ", ";
    transfer->files.push_back(File::OpenForReading(entry.path().string()));
    AppendJsonString(&text, entry.path().filename().string());
    text += ": " + std::to_string(transfer->files.back().Size());
  }
  std::lock_guard lock(standby_mutex_);
  transfer_ = std::move(transfer);
  return text + "}}";
}

std::string Service::ReadTransfer(uint64_t session, uint32_t file, uint64_t offset) const {
  std::shared_ptr<const Transfer> transfer;
  {
    std::lock_guard lock(standby_mutex_);
    transfer = transfer_;
  }
  if (transfer == nullptr || transfer->session != session || file >= transfer->files.size() ||
      offset >= transfer->files[file].Size()) {
    throw Refusal(Code::kUnavailable, Detail::kNotPrimary, "this copy of the state is over; begin again");
  }
  replica_->Hear(session);
  std::string piece(std::min(kPieceBytes, transfer->files[file].Size() - offset), '\0');
  transfer->files[file].Read(piece.data(), piece.size(), offset);
  return piece;
}

void Service::AppendStandbyStats(std::string* out) const {
  const ReplicaStats replica = replica_->GetStats();
  *out += std::string(", \"standby\": \"") + replica.state + "\"";
  *out += ", \"standby_drops\": " + std::to_string(replica.drops);
  *out += ", \"standby_behind_bytes\": " + std::to_string(replica.behind_bytes);
  *out += ", \"held\": " + std::to_string(replica.held);
  std::lock_guard lock(standby_mutex_);
  if (follower_ == nullptr) {
    *out += ", \"is_caught_up\": false";
    return;
  }
  *out += std::string(", \"is_caught_up\": ") + (follower_->is_caught_up() ? "true" : "false");
  *out += std::string(", \"is_following\": ") + (follower_->is_connected() ? "true" : "false");
  AppendJsonString(&(*out += ", \"primary\": "), follower_->primary());
  AppendJsonString(&(*out += ", \"trouble\": "), follower_->trouble());
}

}  // namespace elasticctr::ps
