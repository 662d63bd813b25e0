#include "cube/client/exchange.h"

#include <algorithm>
#include <cerrno>
#include <ctime>

namespace elasticctr::cube {

namespace wire = net::wire;
using std::chrono::milliseconds;

struct Exchange::LegState {
  bool is_open = true;
  bool is_direct_taken = false;
  bool saw_no_version = false;
  uint32_t attempts = 0, in_flight = 0, rounds = 0;
  uint64_t tried = 0;
  Clock::time_point last_start, retry_at = Clock::time_point::max();
  Failure last{Code::kUnavailable, Retry::kOtherReplica, false, wire::Detail::kNone, 0, ""};
  std::string notes;  // what happened at each replica, for the error's message

  void Note(const std::string& what) {
    if (notes.find(what) != std::string::npos) return;  // tried again with the same result
    notes += (notes.empty() ? "" : "; ") + what;
  }
};

namespace {

constexpr auto kFirstBackoff = milliseconds(5);
constexpr auto kPatience = milliseconds(20);  // a shorter silence never counts against a replica

std::string Trimmed(std::string_view text) {
  constexpr size_t kMost = 300;
  std::string out(text.substr(0, kMost));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return out;
}

int64_t MsBetween(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration_cast<milliseconds>(to - from).count();
}

}  // namespace

Exchange::Exchange(Cluster& cluster) : cluster_(cluster) {}

Exchange::~Exchange() {
  for (size_t i = 0; i < used_; ++i) Close(*attempts_[i]);
}

void Exchange::Run(std::span<Leg> legs, Clock::time_point deadline) {
  for (size_t i = 0; i < used_; ++i) Close(*attempts_[i]);
  used_ = 0;
  legs_ = legs;
  deadline_ = deadline;
  now_ = Clock::now();
  open_legs_ = legs.size();
  states_.assign(legs.size(), LegState{});
  for (size_t i = 0; i < legs.size(); ++i) Start(i, false);
  while (open_legs_ > 0) {
    polled_.clear();
    polled_attempts_.clear();
    for (size_t i = 0; i < used_; ++i) {
      Attempt& attempt = *attempts_[i];
      if (!attempt.is_open()) continue;
      polled_.push_back({attempt.connection->fd(), attempt.events(), 0});
      polled_attempts_.push_back(&attempt);
    }
    const auto wait = std::max(Clock::duration::zero(), NextEvent() - now_);
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(wait);
    timespec time{seconds.count(), std::chrono::nanoseconds(wait - seconds).count()};
    const int ready = ppoll(polled_.data(), polled_.size(), &time, nullptr);
    now_ = Clock::now();
    for (size_t i = 0; ready > 0 && i < polled_.size(); ++i) {
      // Another attempt's answer may have closed this one in the same round.
      if (polled_[i].revents != 0 && polled_attempts_[i]->phase != Attempt::Phase::kClosed)
        Advance(*polled_attempts_[i]);
    }
    if (open_legs_ > 0) WakeDue();
  }
}

Attempt& Exchange::NewAttempt() {
  if (used_ == attempts_.size()) attempts_.push_back(std::make_unique<Attempt>());
  return *attempts_[used_++];
}

void Exchange::Start(size_t leg, bool as_backup) {
  LegState& state = states_[leg];
  state.retry_at = Clock::time_point::max();
  const ReplicaSet& set = cluster_.shard(legs_[leg].shard);
  const bool is_pinned = legs_[leg].replica >= 0;
  const int replica = is_pinned ? legs_[leg].replica : set.Pick(state.tried, !as_backup);
  if (replica >= 0) return StartOn(leg, replica, false, as_backup);
  if (as_backup) {
    state.last_start = now_;  // no other replica to ask: try again later
    return;
  }
  // All were tried: start over after a pause.
  const auto pause = std::max<Clock::duration>(kFirstBackoff * (1 << std::min(state.rounds, 6u)),
                                               milliseconds(state.last.retry_after_ms));
  ++state.rounds;
  state.tried = 0;
  state.retry_at = now_ + pause;
  if (state.retry_at >= deadline_) GiveUp(leg);
}

void Exchange::StartOn(size_t leg, int replica, bool fresh, bool as_backup) {
  LegState& state = states_[leg];
  Attempt& attempt = NewAttempt();
  attempt.leg = leg;
  attempt.number = replica;
  attempt.replica = &cluster_.shard(legs_[leg].shard)[static_cast<size_t>(replica)];
  attempt.is_backup = as_backup;
  attempt.is_direct = attempt.is_reused = attempt.has_answered = false;
  attempt.started = now_;
  state.tried |= uint64_t{1} << replica;
  state.last_start = now_;
  if (state.attempts++ > 0 && !as_backup) cluster_.counters().retries.fetch_add(1, std::memory_order_relaxed);
  if (as_backup) cluster_.counters().backups.fetch_add(1, std::memory_order_relaxed);
  try {
    attempt.connection = attempt.replica->Take(fresh);
    ++state.in_flight;
    attempt.is_reused = attempt.connection->greeted();
    if (!attempt.is_reused) {
      attempt.phase = Attempt::Phase::kConnecting;
      return;
    }
    PrepareRequest(attempt);
    attempt.Transmit();
  } catch (const Error& e) {
    Fail(attempt, {e.code(), Retry::kOtherReplica, true, wire::Detail::kNone, 0, e.what()});
  }
}

void Exchange::Advance(Attempt& attempt) {
  try {
    switch (attempt.phase) {
      case Attempt::Phase::kConnecting:
        if (!attempt.connection->FinishConnecting()) return;
        attempt.PrepareHello(cluster_.settings().token, cluster_.NextId());
        return attempt.Transmit();
      case Attempt::Phase::kSending: return attempt.Transmit();
      case Attempt::Phase::kReceiving: attempt.connection->Flush(); return Receive(attempt);
      case Attempt::Phase::kClosed: return;
    }
  } catch (const Error& e) {
    // Rows of another width are a wrong setting, the same on every replica; all other errors may be this one's alone.
    const bool stop = e.code() == Code::kFailedPrecondition;
    Fail(attempt, {e.code(), stop ? Retry::kStop : Retry::kOtherReplica, !stop, wire::Detail::kNone, 0, e.what()});
  }
}

void Exchange::PrepareRequest(Attempt& attempt) {
  Leg& leg = legs_[attempt.leg];
  LegState& state = states_[attempt.leg];
  // Two attempts must never write rows to the same place; the second keeps its own.
  if (leg.rows != nullptr && !state.is_direct_taken) attempt.is_direct = state.is_direct_taken = true;
  const auto time_ms = static_cast<uint32_t>(std::clamp<int64_t>(MsBetween(now_, deadline_), 1, UINT32_MAX));
  attempt.PrepareRequest(leg, cluster_.NextId(), time_ms, attempt.is_direct ? leg.rows : nullptr);
}

void Exchange::Receive(Attempt& attempt) {
  if (!attempt.Receive()) return;
  if (attempt.reader.header().status != 0) return Fail(attempt, ToFailure(attempt.reader));
  if (!attempt.is_hello) return Succeed(attempt);
  attempt.TakeHello();
  PrepareRequest(attempt);
  attempt.Transmit();
}

Exchange::Failure Exchange::ToFailure(const AnswerReader& answer) const {
  const wire::Header& header = answer.header();
  Failure failure{Code::kInternal,
                  Retry::kOtherReplica,
                  true,
                  static_cast<wire::Detail>(header.detail),
                  0,
                  "says: " + Trimmed(answer.text())};
  if (IsCode(header.status)) failure.code = static_cast<Code>(header.status);
  switch (failure.code) {
    case Code::kConfig:
    case Code::kData:
    case Code::kAlreadyExists:
    case Code::kFailedPrecondition:
    case Code::kUnauthorized:
      failure.retry = Retry::kStop;
      failure.is_replicas_fault = false;
      break;
    // The replica is healthy but does not have the requested version, or no time for it: another replica may.
    case Code::kNotFound:
    case Code::kDeadlineExceeded:
    case Code::kUnavailable:
      failure.is_replicas_fault = false;
      failure.retry_after_ms = failure.code == Code::kUnavailable ? header.time_ms : 0;
      break;
    case Code::kCorruption:
    case Code::kInternal: break;
  }
  return failure;
}

void Exchange::Succeed(Attempt& attempt) {
  Leg& leg = legs_[attempt.leg];
  LegState& state = states_[attempt.leg];
  leg.answer = &attempt.reader;
  leg.answered_by = attempt.replica;
  state.is_open = false;
  --open_legs_;
  if (attempt.is_backup) cluster_.counters().backups_won.fetch_add(1, std::memory_order_relaxed);
  attempt.replica->RecordSuccess();
  attempt.replica->Give(Detach(attempt));
  for (size_t i = 0; i < used_ && state.in_flight > 0; ++i) {
    Attempt& other = *attempts_[i];
    if (other.leg != attempt.leg || !other.is_open()) continue;
    // It was overtaken by a later attempt: it is slow or hangs.
    if (other.started < attempt.started) Blame(*other.replica);
    Close(other);
  }
}

void Exchange::Blame(Replica& replica) {
  if (!replica.RecordFailure()) return;
  cluster_.counters().ejections.fetch_add(1, std::memory_order_relaxed);
  cluster_.WakeProber();
}

void Exchange::Fail(Attempt& attempt, const Failure& failure) {
  LegState& state = states_[attempt.leg];
  const size_t leg = attempt.leg;
  Replica& replica = *attempt.replica;
  const bool is_answer = attempt.has_answered && attempt.phase != Attempt::Phase::kClosed &&
                         attempt.reader.header().status != 0 && failure.retry != Retry::kStop &&
                         failure.code != Code::kCorruption;
  // A restarted server closes its idle connections; that says nothing about its current state.
  if (attempt.is_reused && !attempt.has_answered && failure.code == Code::kUnavailable) {
    const bool is_backup = attempt.is_backup;
    const int number = attempt.number;
    Close(attempt);
    --state.attempts;
    return StartOn(leg, number, true, is_backup);
  }
  state.Note(replica.address() + " " + failure.message);
  state.saw_no_version |= failure.detail == wire::Detail::kNoVersion;
  state.last = failure;
  if (failure.is_replicas_fault) Blame(replica);
  if (is_answer) {
    replica.Give(Detach(attempt));
  } else {
    Close(attempt);
  }
  if (legs_[leg].replica >= 0 || failure.retry == Retry::kStop) return GiveUp(leg);
  if (state.in_flight > 0) return;
  if (state.attempts > cluster_.settings().retries) return GiveUp(leg);
  Start(leg, false);
}

std::unique_ptr<net::Connection> Exchange::Detach(Attempt& attempt) {
  LegState& state = states_[attempt.leg];
  if (attempt.is_direct) state.is_direct_taken = attempt.is_direct = false;
  attempt.phase = Attempt::Phase::kClosed;
  --state.in_flight;
  return std::move(attempt.connection);
}

void Exchange::Close(Attempt& attempt) {
  if (attempt.connection != nullptr) attempt.replica->Drop(Detach(attempt));
}

void Exchange::GiveUp(size_t leg) {
  LegState& state = states_[leg];
  LegError& error = legs_[leg].error;
  error.code = state.last.code;
  error.detail = state.last.detail;
  error.retry_after_ms = state.last.retry_after_ms;
  for (size_t i = 0; i < used_; ++i) {
    Attempt& attempt = *attempts_[i];
    if (attempt.leg != leg || !attempt.is_open()) continue;
    if (now_ >= deadline_) {
      state.Note(attempt.replica->address() + " did not answer in " + std::to_string(MsBetween(attempt.started, now_)) +
                 " ms");
      error.code = Code::kDeadlineExceeded;
      error.detail = wire::Detail::kNone;
      if (now_ - attempt.started >= kPatience) Blame(*attempt.replica);
    }
    Close(attempt);
  }
  if (state.saw_no_version && state.last.retry != Retry::kStop) {
    error.code = Code::kNotFound;
    error.detail = wire::Detail::kNoVersion;
  }
  if (state.notes.empty()) state.notes = "no time was left to ask";
  error.message =
      "shard " + std::to_string(legs_[leg].shard) + " of " + std::to_string(cluster_.shards()) + ": " + state.notes;
  state.is_open = false;
  --open_legs_;
}

void Exchange::WakeDue() {
  const ClientSettings& settings = cluster_.settings();
  const auto connect_time = milliseconds(settings.connect_ms);
  for (size_t i = 0; i < used_; ++i) {
    Attempt& attempt = *attempts_[i];
    if (attempt.is_opening() && now_ - attempt.started >= connect_time) {
      Fail(attempt, {Code::kUnavailable, Retry::kOtherReplica, true, wire::Detail::kNone, 0,
                     "gave no connection in " + std::to_string(settings.connect_ms) + " ms"});
    }
  }
  for (size_t leg = 0; leg < legs_.size(); ++leg) {
    LegState& state = states_[leg];
    if (!state.is_open) continue;
    if (now_ >= deadline_) {
      GiveUp(leg);
    } else if (now_ >= state.retry_at) {
      Start(leg, false);
    } else if (WantsBackup(leg) && now_ >= state.last_start + milliseconds(settings.backup_ms)) {
      Start(leg, true);
    }
  }
}

bool Exchange::WantsBackup(size_t leg) const {
  const LegState& state = states_[leg];
  return cluster_.settings().backup_ms > 0 && state.in_flight > 0 && legs_[leg].replica < 0 &&
         state.attempts <= cluster_.settings().retries && cluster_.shard(legs_[leg].shard).size() > 1;
}

Clock::time_point Exchange::NextEvent() const {
  const ClientSettings& settings = cluster_.settings();
  Clock::time_point next = deadline_;
  for (size_t i = 0; i < used_; ++i) {
    const Attempt& attempt = *attempts_[i];
    if (attempt.is_opening()) next = std::min(next, attempt.started + milliseconds(settings.connect_ms));
  }
  for (size_t leg = 0; leg < states_.size(); ++leg) {
    if (!states_[leg].is_open) continue;
    next = std::min(next, states_[leg].retry_at);
    if (WantsBackup(leg)) next = std::min(next, states_[leg].last_start + milliseconds(settings.backup_ms));
  }
  return next;
}

}  // namespace elasticctr::cube
