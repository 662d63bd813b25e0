#include "net/loop/loop.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>

#include "net/loop/connection.h"
#include "util/signals.h"

namespace elasticctr::net {
namespace {

constexpr int kEvents = 256;
constexpr uint64_t kLingerNs = kSecondNs;
constexpr uint64_t kWakeTag = ~uint64_t{0};
constexpr uint64_t kDrainStepMs = 20;
constexpr double kMaxQuietS = 0.1;
constexpr uint64_t kLargeTurnNs = 200'000;

}  // namespace

Loop::Loop(uint32_t index, const LoopLimits& limits, Application* application, Budget* budget, LoopStats* stats)
    : index_(index),
      limits_(limits),
      application_(application),
      budget_(budget),
      stats_(stats),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(MakeEventFd()),
      scratch_(new uint8_t[kScratchBytes]) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeTag;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
}

Loop::~Loop() {
  Stop();
  Join();
}

void Loop::Start() {
  const BlockedSignals blocked;
  thread_ = std::thread([this] { Run(); });
}

void Loop::Adopt(Fd fd, std::shared_ptr<const TlsContext> tls, std::shared_ptr<Share> share) {
  connections_.fetch_add(1, std::memory_order_relaxed);
  {
    std::lock_guard lock(inbox_mutex_);
    adopted_.push_back({std::move(fd), std::move(tls), std::move(share)});
  }
  SignalEventFd(wake_);
}

void Loop::MakeRoom() {
  if (!is_crowded_.exchange(true, std::memory_order_relaxed)) SignalEventFd(wake_);
}

void Loop::Complete(ConnectionId id, std::string answer, bool close) {
  bool is_first;
  {
    std::lock_guard lock(inbox_mutex_);
    is_first = completions_.empty();
    completions_.push_back({id, std::move(answer), close});
  }
  // The loop clears the signal before it empties the inbox, so one signal is enough for all entries.
  if (is_first) SignalEventFd(wake_);
}

void Loop::Wake() { SignalEventFd(wake_); }

void Loop::Drain(double drain_s) {
  {
    std::lock_guard lock(inbox_mutex_);
    drain_quiet_ns_ = 1 + static_cast<uint64_t>(std::clamp(drain_s / 20, 0.0, kMaxQuietS) * kSecondNs);
  }
  SignalEventFd(wake_);
}

void Loop::Stop() {
  stopping_.store(true);
  SignalEventFd(wake_);
}

void Loop::Join() {
  if (thread_.joinable()) thread_.join();
}

void Loop::Run() {
  application_->OnWake(index_);
  epoll_event events[kEvents];
  while (!stopping_.load(std::memory_order_relaxed)) {
    const int n = WaitForEvents(events, kEvents);
    now_ns_ = NowNs();
    int late = 0;  // number of events, moved to the front, whose connections hold much
    for (int i = 0; i < n; ++i) {
      if (events[i].data.u64 == kWakeTag) {
        DrainEventFd(wake_);
        application_->OnWake(index_);
        TakeInbox();
        continue;
      }
      Connection* c = Find(events[i]);
      if (c == nullptr) continue;
      if (c->holds_much()) {
        events[late++] = events[i];
      } else {
        Handle(*c, events[i].events);
      }
    }
    if (late > 0 || !large_.empty()) HandleLarge(events, late);
    const uint64_t sweep_ns = is_draining_ ? kDrainStepMs * 1'000'000 : kSecondNs;
    const bool is_due = has_deadlines_ || is_draining_ || is_crowded_.load(std::memory_order_relaxed);
    if (is_due && now_ns_ - swept_ns_ >= sweep_ns) Sweep();
    if (is_draining_ && connections_.load(std::memory_order_relaxed) == 0) break;
    if (const uint32_t us = application_->pause_us(index_)) {
      std::this_thread::sleep_for(std::chrono::microseconds(us));
    }
  }
  for (auto& c : slots_) {
    if (c != nullptr) Close(*c);
  }
}

// Takes one large turn, or several short ones, of each kind: reading and answering. The rest follows in the next round.
void Loop::HandleLarge(const epoll_event* events, int count) {
  const uint64_t began_ns = NowNs();
  for (int i = 0; i < count; ++i) {
    if (Connection* c = Find(events[i])) Handle(*c, events[i].events);
    if (NowNs() - began_ns > kLargeTurnNs) break;
  }
  while (!large_.empty()) {
    const ConnectionId id = large_.front();
    large_.pop_front();
    if (Connection* c = Find(id.slot, id.serial)) AdvanceInLine(*c);
    if (NowNs() - began_ns > 2 * kLargeTurnNs) break;
  }
}

int Loop::WaitForEvents(epoll_event* events, int capacity) {
  if (!large_.empty()) return ::epoll_wait(epoll_.get(), events, capacity, 0);
  if (limits_.busy_poll_us > 0) {
    uint64_t until = NowNs() + uint64_t{limits_.busy_poll_us} * 1000;
    do {
      int n = ::epoll_wait(epoll_.get(), events, capacity, 0);
      if (n != 0) return n;
    } while (NowNs() < until);
  }
  const bool is_due = has_deadlines_ || is_crowded_.load(std::memory_order_relaxed);
  int timeout_ms = is_draining_ ? kDrainStepMs : is_due ? 1000 : -1;
  return ::epoll_wait(epoll_.get(), events, capacity, timeout_ms);
}

void Loop::TakeInbox() {
  std::vector<Adopted> adopted;
  std::vector<Completion> completions;
  uint64_t drain_quiet_ns;
  {
    std::lock_guard lock(inbox_mutex_);
    adopted.swap(adopted_);
    completions.swap(completions_);
    drain_quiet_ns = drain_quiet_ns_;
  }
  for (Adopted& one : adopted) Add(std::move(one));
  for (size_t i = 0; i < completions.size(); ++i) {
    const ConnectionId& id = completions[i].id;
    bool more = i + 1 < completions.size() && completions[i + 1].id.serial == id.serial;
    if (Connection* c = Find(id.slot, id.serial)) Finish(*c, completions[i], more);
  }
  if (drain_quiet_ns != 0 && !is_draining_) {
    is_draining_ = true;
    quiet_ns_ = drain_quiet_ns;
    drain_began_ns_ = now_ns_;
  }
}

void Loop::Add(Adopted adopted) {
  uint32_t slot;
  if (free_slots_.empty()) {
    slot = static_cast<uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  auto c = std::make_unique<Connection>();
  c->fd = std::move(adopted.fd);
  c->tls_context = std::move(adopted.tls);
  c->id = {index_, slot, next_serial_++};
  c->account = {budget_, std::move(adopted.share)};
  c->received_ns = now_ns_;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = slot | (c->id.serial << 32);
  bool added = ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, c->fd.get(), &event) == 0;
  slots_[slot] = std::move(c);
  if (!added) return Close(*slots_[slot]);
  has_deadlines_ = has_deadlines_ || application_->silent_limit_s() != 0;
}

// A connection closed earlier in the round may have freed its slot for another one.
Loop::Connection* Loop::Find(const epoll_event& event) {
  Connection* c = Find(static_cast<uint32_t>(event.data.u64), 0);
  return c != nullptr && static_cast<uint32_t>(c->id.serial) == event.data.u64 >> 32 ? c : nullptr;
}

Loop::Connection* Loop::Find(uint32_t slot, uint64_t serial) {
  Connection* c = slot < slots_.size() ? slots_[slot].get() : nullptr;
  return c != nullptr && (serial == 0 || c->id.serial == serial) ? c : nullptr;
}

void Loop::Handle(Connection& c, uint32_t events) {
  try {
    if (c.is_lingering) {
      ssize_t n = ::recv(c.fd.get(), scratch_.get(), kScratchBytes, MSG_DONTWAIT);
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) Close(c);
      return;
    }
    if ((events & (EPOLLERR | EPOLLHUP)) != 0 && (events & EPOLLIN) == 0) return Close(c);
    if ((events & EPOLLOUT) != 0) {
      if (!FlushPending(c)) return Close(c);
      if (c.out.empty()) {
        if (c.is_closing) return Linger(c);
        if (c.is_waiting) {
          c.stalled_ns = 0;
          return SetInterest(c);
        }
        // Requests that arrived earlier come before new ones.
        if (c.is_in_line) return SetInterest(c);
        return AdvanceHeld(c);
      }
    }
    if ((events & EPOLLIN) == 0 || (c.interest & EPOLLIN) == 0) return;
    if (!c.is_waiting && !c.is_in_line) return Receive(c);
    // More input arrived while an answer is pending: it is read later.
    SetInterest(c, 0);
  } catch (const std::exception&) {
    // Out of memory for this connection's answer; the other connections continue.
    out_.Release();
    Close(c);
  }
}

void Loop::Close(Connection& c) {
  c.account.Move(c.charged, 0);
  if (c.account.share != nullptr) c.account.share->connections.fetch_sub(1, std::memory_order_relaxed);
  uint32_t slot = c.id.slot;
  slots_[slot].reset();
  free_slots_.push_back(slot);
  connections_.fetch_sub(1, std::memory_order_relaxed);
}

void Loop::Sweep() {
  swept_ns_ = now_ns_;
  has_deadlines_ = false;
  const bool is_crowded = is_crowded_.exchange(false, std::memory_order_relaxed);
  for (size_t i = 0; i < slots_.size(); ++i) {
    Connection* c = slots_[i].get();
    if (c == nullptr) continue;
    if (is_draining_ && MayEnd(*c)) Linger(*c);
    uint64_t limit_ns, since_ns;
    if (c->is_lingering) {
      limit_ns = is_draining_ ? kLingerNs / 5 : kLingerNs;
      since_ns = c->stalled_ns;
    } else if (c->stalled_ns != 0) {
      limit_ns = c->patience_ns;
      since_ns = c->stalled_ns;
    } else {
      uint32_t limit_s = c->session == nullptr ? application_->silent_limit_s() : c->session->idle_limit_s();
      if (c->is_busy()) continue;
      since_ns = c->received_ns;
      if (is_crowded && now_ns_ - std::min(since_ns, now_ns_) >= limits_.crowded_idle_s * kSecondNs) {
        stats_->displaced.fetch_add(1, std::memory_order_relaxed);
        Close(*c);
        continue;
      }
      if (limit_s == 0) continue;
      limit_ns = limit_s * kSecondNs;
    }
    if (now_ns_ - std::min(since_ns, now_ns_) < limit_ns) {
      has_deadlines_ = true;
      continue;
    }
    if (!c->is_lingering) stats_->timed_out.fetch_add(1, std::memory_order_relaxed);
    Close(*c);
  }
}

}  // namespace elasticctr::net
