#include "net/loop.h"

#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>

namespace elasticctr::net {
namespace {

constexpr size_t kScratchBytes = 256 * 1024;
constexpr size_t kCarriedBytes = 64 * 1024;  // leftovers up to this move to the scratch buffer and are read on there
constexpr size_t kKeptOutputBytes = 2 * kFlushBytes;
constexpr int kEvents = 256;
constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kLingerNs = kSecondNs;
constexpr uint64_t kSlowestBytesPerS = 1'000'000;
constexpr uint64_t kWakeTag = ~uint64_t{0};

}  // namespace

struct Loop::Connection {
  Fd fd;
  ConnectionId id;
  std::unique_ptr<Session> session;
  Buffer in;   // what came and is not consumed
  Buffer out;  // what the socket did not take yet
  size_t need = 0;
  size_t charged = 0;  // bytes counted in the budget
  uint64_t received_ns = 0;
  uint64_t stalled_ns = 0;   // since when half a request or an unread answer waits; 0: neither does
  uint64_t patience_ns = 0;  // how long it may
  uint32_t interest = EPOLLIN;
  bool is_waiting = false;
  bool is_closing = false;
  bool is_lingering = false;  // our side is shut; what still comes is thrown away so that the peer reads our last words
};

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
  // Signals are the main thread's business.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Loop::Adopt(Fd fd) {
  connections_.fetch_add(1, std::memory_order_relaxed);
  {
    std::lock_guard lock(inbox_mutex_);
    adopted_.push_back(std::move(fd));
  }
  SignalEventFd(wake_);
}

void Loop::Complete(ConnectionId id, std::string answer, bool close) {
  {
    std::lock_guard lock(inbox_mutex_);
    completions_.push_back({id, std::move(answer), close});
  }
  SignalEventFd(wake_);
}

void Loop::Wake() { SignalEventFd(wake_); }

void Loop::Drain() {
  {
    std::lock_guard lock(inbox_mutex_);
    drain_asked_ = true;
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
    int n = WaitForEvents(events, kEvents);
    now_ns_ = NowNs();
    for (int i = 0; i < n; ++i) {
      if (events[i].data.u64 == kWakeTag) {
        DrainEventFd(wake_);
        application_->OnWake(index_);
        TakeInbox();
        continue;
      }
      auto slot = static_cast<uint32_t>(events[i].data.u64);
      // A connection closed earlier in this round may have left its slot to another.
      Connection* c = Find(slot, 0);
      if (c == nullptr || static_cast<uint32_t>(c->id.serial) != events[i].data.u64 >> 32) continue;
      Handle(*c, events[i].events);
    }
    if ((has_deadlines_ || is_draining_) && now_ns_ - swept_ns_ >= (is_draining_ ? kSecondNs / 20 : kSecondNs)) Sweep();
    if (is_draining_ && connections_.load(std::memory_order_relaxed) == 0) break;
  }
  for (auto& c : slots_) {
    if (c != nullptr) Close(*c);
  }
}

int Loop::WaitForEvents(epoll_event* events, int capacity) {
  if (limits_.busy_poll_us > 0) {
    uint64_t until = NowNs() + uint64_t{limits_.busy_poll_us} * 1000;
    do {
      int n = ::epoll_wait(epoll_.get(), events, capacity, 0);
      if (n != 0) return n;
    } while (NowNs() < until);
  }
  int timeout_ms = is_draining_ ? 50 : has_deadlines_ ? 1000 : -1;
  return ::epoll_wait(epoll_.get(), events, capacity, timeout_ms);
}

void Loop::TakeInbox() {
  std::vector<Fd> adopted;
  std::vector<Completion> completions;
  bool drain = false;
  {
    std::lock_guard lock(inbox_mutex_);
    adopted.swap(adopted_);
    completions.swap(completions_);
    drain = drain_asked_;
  }
  for (Fd& fd : adopted) Add(std::move(fd));
  for (Completion& completion : completions) {
    if (Connection* c = Find(completion.id.slot, completion.id.serial)) Finish(*c, completion);
  }
  if (drain && !is_draining_) {
    is_draining_ = true;
    for (size_t i = 0; i < slots_.size(); ++i) {
      Connection* c = slots_[i].get();
      if (c == nullptr || c->is_lingering) continue;
      if (c->interest & EPOLLIN) Receive(*c);
      c = slots_[i].get();
      if (c != nullptr && !c->is_lingering && c->in.empty() && c->out.empty() && !c->is_waiting) Linger(*c);
    }
  }
}

void Loop::Add(Fd fd) {
  uint32_t slot;
  if (free_slots_.empty()) {
    slot = static_cast<uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  auto c = std::make_unique<Connection>();
  c->fd = std::move(fd);
  c->id = {index_, slot, next_serial_++};
  c->received_ns = now_ns_;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = slot | (c->id.serial << 32);
  bool added = ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, c->fd.get(), &event) == 0;
  slots_[slot] = std::move(c);
  if (!added) return Close(*slots_[slot]);
  has_deadlines_ = has_deadlines_ || application_->silent_limit_s() != 0;
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
        // Requests that had arrived already come before new ones.
        return Advance(c, c.in.data(), c.in.size(), true);
      }
    }
    if ((events & EPOLLIN) != 0 && (c.interest & EPOLLIN) != 0) Receive(c);
  } catch (const std::exception&) {
    // Out of memory for this connection's answer; the others go on.
    out_.Release();
    Close(c);
  }
}

void Loop::Receive(Connection& c) {
  size_t have = c.in.size();
  bool owned = have > kCarriedBytes || c.need > kScratchBytes;
  uint8_t* into;
  size_t room;
  if (owned) {
    into = c.in.Reserve(std::max(c.need > have ? c.need - have : 0, kCarriedBytes));
    room = c.in.room();
  } else {
    if (have != 0) std::memcpy(scratch_.get(), c.in.data(), have);
    into = scratch_.get() + have;
    room = kScratchBytes - have;
  }
  ssize_t n = ::recv(c.fd.get(), into, room, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) return Close(c);
  c.received_ns = NowNs();
  if (owned) {
    c.in.Commit(static_cast<size_t>(n));
    return Advance(c, c.in.data(), c.in.size(), true);
  }
  c.in.Clear();
  Advance(c, scratch_.get(), have + static_cast<size_t>(n), false);
}

// `owned`: the bytes are those of c.in; else they are in the scratch buffer and c.in is empty.
void Loop::Advance(Connection& c, const uint8_t* data, size_t size, bool owned) {
  size_t taken = 0;
  Step step = RunSession(c, data, size, &taken);
  if (step.next == Next::kClose && !c.is_closing) return Close(c);
  if (owned) {
    c.in.Consume(taken);
  } else if (taken < size) {
    c.in.Append(data + taken, size - taken);
  }
  if (c.is_closing || c.in.empty()) c.in.Release();
  Settle(c, step, taken != 0 && !step.in_request);
}

// kClose without is_closing: the connection is of no use any more.
Step Loop::RunSession(Connection& c, const uint8_t* data, size_t size, size_t* taken) {
  Step broken;
  broken.next = Next::kClose;
  if (c.session == nullptr) {
    Protocol protocol = Sniff(data, size);
    if (protocol == Protocol::kUndecided) return {};
    c.session = application_->Open(protocol, c.id);
    if (c.session == nullptr) {
      stats_->foreign.fetch_add(1, std::memory_order_relaxed);
      return broken;
    }
  }
  while (true) {
    Step step = c.session->Consume(data + *taken, size - *taken, c.received_ns, &out_);
    *taken += step.consumed;
    if (!out_.empty()) {
      bool written = Write(c);
      application_->OnAnswered(index_, c.received_ns);
      if (!written) return broken;
    }
    if (step.next == Next::kFlush && c.out.empty()) continue;
    if (step.next == Next::kClose) c.is_closing = true;
    return step;
  }
}

// After a session's turn: what to wait for now, and since when.
void Loop::Settle(Connection& c, const Step& step, bool moved_on) {
  c.is_waiting = step.next == Next::kWait;
  c.need = step.next == Next::kRead ? step.need : 0;
  bool is_half = step.next == Next::kRead && (step.in_request || !c.in.empty());
  if (!is_half && c.out.empty()) {
    c.stalled_ns = 0;
  } else if (c.stalled_ns == 0 || moved_on) {
    // Large requests and answers get longer, at a rate that any honest network has: a byte now and then is not enough.
    c.stalled_ns = now_ns_;
    c.patience_ns =
        limits_.request_timeout_s * kSecondNs + std::max(c.need, c.out.size()) * (kSecondNs / kSlowestBytesPerS);
  }
  budget_->Move(c.charged, c.in.size() + c.out.size());
  c.charged = c.in.size() + c.out.size();
  if (is_half && !budget_->HasRoomFor(0)) return Close(c);
  if (c.out.empty() && (c.is_closing || (is_draining_ && c.in.empty() && !c.is_waiting))) return Linger(c);
  if (c.stalled_ns != 0 || c.session == nullptr || c.session->idle_limit_s() != 0) has_deadlines_ = true;
  SetInterest(c);
}

// Sends out_; what the socket does not take becomes the connection's own. False: the connection is broken.
bool Loop::Write(Connection& c) {
  if (c.out.empty()) {
    c.out.Swap(out_);
    bool alive = FlushPending(c);
    // The loop's buffer comes back unless it is needed to hold the rest.
    if (c.out.empty()) c.out.Swap(out_);
    if (out_.capacity() > kKeptOutputBytes) out_.Release();
    return alive;
  }
  c.out.Append(out_.data(), out_.size());
  out_.Clear();
  return true;
}

bool Loop::FlushPending(Connection& c) {
  while (!c.out.empty()) {
    ssize_t n = ::send(c.fd.get(), c.out.data(), c.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == ENOBUFS)) break;
    if (n < 0) {
      c.out.Clear();
      return false;
    }
    c.out.Consume(static_cast<size_t>(n));
  }
  return true;
}

void Loop::Finish(Connection& c, const Completion& completion) {
  if (!c.is_waiting) return;
  c.is_waiting = false;
  c.is_closing = completion.close;
  out_.Append(completion.answer);
  if (!Write(c)) return Close(c);
  if (c.is_closing || !c.out.empty()) {
    Step step;
    step.next = c.is_closing ? Next::kClose : Next::kFlush;
    return Settle(c, step, true);
  }
  try {
    Advance(c, c.in.data(), c.in.size(), true);
  } catch (const std::exception&) {
    out_.Release();
    Close(c);
  }
}

void Loop::Linger(Connection& c) {
  c.in.Release();
  c.out.Release();
  budget_->Move(c.charged, 0);
  c.charged = 0;
  c.is_lingering = true;
  c.stalled_ns = now_ns_;
  has_deadlines_ = true;
  ::shutdown(c.fd.get(), SHUT_WR);
  SetInterest(c);
}

void Loop::SetInterest(Connection& c) {
  uint32_t wanted = 0;
  if (!c.out.empty()) {
    wanted = EPOLLOUT;
  } else {
    c.out.Release();
    if (!c.is_waiting) wanted = EPOLLIN;
  }
  if (wanted == c.interest) return;
  epoll_event event{};
  event.events = wanted;
  event.data.u64 = c.id.slot | (c.id.serial << 32);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, c.fd.get(), &event);
  c.interest = wanted;
}

void Loop::Close(Connection& c) {
  budget_->Move(c.charged, 0);
  uint32_t slot = c.id.slot;
  slots_[slot].reset();
  free_slots_.push_back(slot);
  connections_.fetch_sub(1, std::memory_order_relaxed);
}

void Loop::Sweep() {
  swept_ns_ = now_ns_;
  has_deadlines_ = false;
  for (size_t i = 0; i < slots_.size(); ++i) {
    Connection* c = slots_[i].get();
    if (c == nullptr) continue;
    uint64_t limit_ns, since_ns;
    if (c->is_lingering) {
      limit_ns = is_draining_ ? kLingerNs / 5 : kLingerNs;
      since_ns = c->stalled_ns;
    } else if (c->stalled_ns != 0) {
      limit_ns = c->patience_ns;
      since_ns = c->stalled_ns;
    } else {
      uint32_t limit_s = c->session == nullptr ? application_->silent_limit_s() : c->session->idle_limit_s();
      if (limit_s == 0 || c->is_waiting) continue;
      limit_ns = limit_s * kSecondNs;
      since_ns = c->received_ns;
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
