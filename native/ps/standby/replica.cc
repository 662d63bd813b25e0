#include "ps/standby/replica.h"

#include <algorithm>
#include <chrono>

#include "net/socket.h"
#include "ps/server/refusal.h"
#include "util/coding.h"

namespace elasticctr::ps {
namespace {

constexpr uint64_t kMillisecondNs = 1'000'000;
constexpr uint64_t kJoiningPatience = 12;  // between two pieces of the state, while it is loaded
constexpr size_t kEntryHead = 16;          // place, opcode, length
constexpr size_t kMaxAnswerBytes = 16u << 20;

const char* NameOf(uint8_t phase) {
  constexpr const char* kNames[] = {"none", "joining", "joining", "in_sync", "dropping"};
  return kNames[phase];
}

void Call(const std::vector<std::function<void()>>& answers) {
  for (const auto& answer : answers) answer();
}

}  // namespace

Replica::Replica(const ReplicaOptions& options) : options_(options), thread_([this] { Serve(); }) {}

Replica::~Replica() {
  {
    std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

bool Replica::IsWatching() const {
  std::lock_guard lock(mutex_);
  return phase_ != Phase::kNone;
}

uint64_t Replica::OnChange(const Change& change) {
  std::lock_guard lock(mutex_);
  ++place_;
  // Changes made while a standby is being dropped are acknowledged together with the others.
  if (phase_ == Phase::kDropping) return place_;
  if (phase_ == Phase::kNone) return 0;
  Entry entry{place_, net::NowNs(), std::string(kEntryHead + change.body.size(), '\0')};
  EncodeFixed64(entry.bytes.data(), place_);
  EncodeFixed32(entry.bytes.data() + 8, static_cast<uint32_t>(change.opcode));
  EncodeFixed32(entry.bytes.data() + 12, static_cast<uint32_t>(change.body.size()));
  std::copy(change.body.begin(), change.body.end(), entry.bytes.begin() + kEntryHead);
  log_bytes_ += entry.bytes.size();
  log_.push_back(std::move(entry));
  wake_.notify_all();
  return place_;
}

uint64_t Replica::last_place() const {
  std::lock_guard lock(mutex_);
  return Waits() ? place_ : 0;
}

bool Replica::IsHeld(uint64_t place) const {
  std::lock_guard lock(mutex_);
  return !Waits() || place <= acked_;
}

void Replica::WhenHeld(uint64_t place, std::function<void()> answer) {
  {
    std::lock_guard lock(mutex_);
    if (Waits() && place > acked_) {
      const auto after = std::upper_bound(held_.begin(), held_.end(), place,
                                          [](uint64_t value, const Held& held) { return value < held.place; });
      held_.insert(after, {place, std::move(answer)});
      return;
    }
  }
  answer();
}

Replica::Start Replica::Begin() {
  Answers released;
  Start start;
  {
    std::lock_guard lock(mutex_);
    // A standby that starts over cannot take over now: no answers need to be held for it.
    ReleaseAll(&released);
    ForgetLog();
    fetch_ = nullptr;
    phase_ = Phase::kJoining;
    acked_ = place_;
    start = {++session_, place_};
    heard_ns_ = net::NowNs();
  }
  // Only queued answers of other connections: none of them takes the shard's lock.
  Call(released);
  return start;
}

void Replica::Hear(uint64_t session) {
  std::lock_guard lock(mutex_);
  if (session == session_) heard_ns_ = net::NowNs();
}

void Replica::Fetch(uint64_t session, uint64_t acked, std::function<void(std::string)> answer) {
  Answers released;
  {
    std::lock_guard lock(mutex_);
    const bool is_over = session != session_ || phase_ == Phase::kNone || phase_ == Phase::kDropping;
    if (is_over || acked < acked_ || acked > place_) {
      throw Refusal(Code::kUnavailable, Detail::kNotPrimary, "this standby was dropped; it has to begin again");
    }
    heard_ns_ = net::NowNs();
    acked_ = acked;
    while (!log_.empty() && log_.front().place <= acked) {
      log_bytes_ -= log_.front().bytes.size();
      log_.pop_front();
    }
    if (phase_ == Phase::kJoining && log_bytes_ <= options_.near_bytes) {
      phase_ = Phase::kClosing;
      sync_from_ = place_;
    }
    if (phase_ == Phase::kClosing && acked_ >= sync_from_) phase_ = Phase::kInSync;
    while (!held_.empty() && held_.front().place <= acked) {
      released.push_back(std::move(held_.front().answer));
      held_.pop_front();
    }
    fetch_ = std::move(answer);
    fetch_ns_ = heard_ns_;
    wake_.notify_all();
  }
  Call(released);
}

void Replica::Leave(uint64_t session) {
  Answers released;
  {
    std::lock_guard lock(mutex_);
    if (session != session_) return;
    StartDrop(&released);
  }
  Call(released);
}

void Replica::Reset() {
  Answers released;
  {
    std::lock_guard lock(mutex_);
    EndDrop(&released);
  }
  Call(released);
}

bool Replica::is_dropping() const {
  std::lock_guard lock(mutex_);
  return phase_ == Phase::kDropping;
}

void Replica::ConfirmDrop() {
  Answers released;
  {
    std::lock_guard lock(mutex_);
    if (phase_ == Phase::kDropping) EndDrop(&released);
  }
  Call(released);
}

// The following functions REQUIRE: mutex_ is held.
void Replica::StartDrop(Answers* released) {
  if (phase_ == Phase::kNone || phase_ == Phase::kDropping) return;
  ++drops_;
  const bool must_be_told = phase_ == Phase::kInSync && !options_.confirms_itself;
  if (!must_be_told) return EndDrop(released);
  phase_ = Phase::kDropping;
  ForgetLog();
  fetch_ = nullptr;
}

void Replica::EndDrop(Answers* released) {
  phase_ = Phase::kNone;
  ++session_;
  ForgetLog();
  fetch_ = nullptr;
  ReleaseAll(released);
}

void Replica::ReleaseAll(Answers* released) {
  for (Held& held : held_) released->push_back(std::move(held.answer));
  held_.clear();
}

void Replica::ForgetLog() {
  log_.clear();
  log_bytes_ = 0;
}

// Eight bytes, the first of which says whether the standby is in sync, then entries.
std::string Replica::TakeAnswer() {
  std::string answer(8, '\0');
  answer[0] = phase_ == Phase::kInSync ? 1 : 0;
  for (const Entry& entry : log_) {
    if (answer.size() > 8 && answer.size() + entry.bytes.size() > kMaxAnswerBytes) break;
    answer += entry.bytes;
  }
  return answer;
}

void Replica::Serve() {
  std::unique_lock lock(mutex_);
  while (!is_stopping_) {
    wake_.wait_for(lock, std::chrono::milliseconds(50));
    if (phase_ == Phase::kNone || phase_ == Phase::kDropping) continue;
    const uint64_t now = net::NowNs();
    if (fetch_ && (!log_.empty() || now - fetch_ns_ > options_.keepalive_ms * kMillisecondNs)) {
      auto answer = std::move(fetch_);
      fetch_ = nullptr;
      heard_ns_ = now;
      std::string text = TakeAnswer();
      lock.unlock();
      answer(std::move(text));
      lock.lock();
      continue;
    }
    const uint64_t patience = uint64_t{options_.timeout_ms} * (phase_ == Phase::kJoining ? kJoiningPatience : 1);
    const bool is_silent = !fetch_ && now - std::min(heard_ns_, now) > patience * kMillisecondNs;
    if (!is_silent && log_bytes_ <= options_.max_bytes) continue;
    Answers released;
    StartDrop(&released);
    lock.unlock();
    Call(released);
    lock.lock();
  }
}

ReplicaStats Replica::GetStats() const {
  std::lock_guard lock(mutex_);
  return {NameOf(static_cast<uint8_t>(phase_)), drops_, log_bytes_, place_, held_.size()};
}

}  // namespace elasticctr::ps
