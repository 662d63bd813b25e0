// How a loop reads, answers and writes the bytes of its connections.
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>

#include "net/loop/connection.h"
#include "net/loop/plain_refusal.h"

namespace elasticctr::net {
namespace {

constexpr size_t kKeptOutputBytes = 2 * kFlushBytes;
constexpr uint64_t kSlowestBytesPerS = 1'000'000;
constexpr uint64_t kDrainQuietTimes = 5;  // a drain waits at most this many quiet times for one connection

}  // namespace

void Loop::Receive(Connection& c) {
  if (c.tls_context != nullptr) return ReceiveSecure(c);
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
    return AdvanceHeld(c);
  }
  c.in.Clear();
  Advance(c, scratch_.get(), have + static_cast<size_t>(n), false);
}

void Loop::ReceiveSecure(Connection& c) {
  ssize_t n = ::recv(c.fd.get(), scratch_.get(), kScratchBytes, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) return Close(c);
  c.received_ns = NowNs();
  const auto size = static_cast<size_t>(n);
  if (c.tls == nullptr && Sniff(scratch_.get(), size) != Protocol::kTls) {
    c.out.Append(PlainRefusal(scratch_.get(), size));
    return RefuseSecure(c);
  }
  if (c.tls == nullptr) c.tls = std::make_unique<TlsStream>(*c.tls_context);
  if (!c.tls->Receive(scratch_.get(), size, &c.in, &c.out)) return RefuseSecure(c);
  if (!FlushPending(c)) return Close(c);
  if (c.in.empty()) return Settle(c, {}, false);
  AdvanceHeld(c);
}

// Sends its last bytes and reads a little longer: closing a socket with unread input would discard them.
void Loop::RefuseSecure(Connection& c) {
  stats_->foreign.fetch_add(1, std::memory_order_relaxed);
  if (!FlushPending(c)) return Close(c);
  Linger(c);
}

// `owned`: the bytes are those of c.in; else they are in the scratch buffer and c.in is empty.
void Loop::Advance(Connection& c, const uint8_t* data, size_t size, bool owned) {
  size_t taken = 0;
  Step step = RunSession(c, data, size, owned, &taken);
  if (step.next == Next::kClose && !c.is_closing) return Close(c);
  if (owned) {
    c.in.Consume(taken);
  } else if (taken < size) {
    c.in.Append(data + taken, size - taken);
  }
  if (c.is_closing || c.in.empty()) c.in.Release();
  Settle(c, step, taken != 0 && !step.in_request);
}

void Loop::AdvanceHeld(Connection& c) {
  if (c.is_in_line) return;
  if ((!c.is_large && c.in.size() <= kCarriedBytes) || c.in.size() < c.need)
    return Advance(c, c.in.data(), c.in.size(), true);
  large_.push_back(c.id);
  c.is_in_line = true;
}

void Loop::AdvanceInLine(Connection& c) {
  c.is_in_line = false;
  if (!c.out.empty() || c.is_waiting) return SetInterest(c);  // resumes when the earlier answers are sent
  try {
    Advance(c, c.in.data(), c.in.size(), true);
  } catch (const std::exception&) {
    out_.Release();
    Close(c);
  }
}

// kClose without is_closing: the connection is unusable.
Step Loop::RunSession(Connection& c, const uint8_t* data, size_t size, bool owned, size_t* taken) {
  Step broken;
  broken.next = Next::kClose;
  if (c.session == nullptr) {
    Protocol protocol = Sniff(data, size);
    if (protocol == Protocol::kUndecided) return {};
    c.session = application_->Open(protocol, c.id, c.fd.get());
    if (c.session == nullptr) {
      stats_->foreign.fetch_add(1, std::memory_order_relaxed);
      return broken;
    }
    c.session->set_account(c.account);
  }
  while (true) {
    Step step = c.session->Consume(data + *taken, size - *taken, c.received_ns, &out_);
    *taken += step.consumed;
    if (!out_.empty()) {
      bool written = Write(c);
      application_->OnAnswered(index_, c.received_ns);
      if (!written) return broken;
    }
    const bool is_enough = step.is_large || (owned && size - *taken > kCarriedBytes);
    if (step.next == Next::kFlush && c.out.empty() && !is_enough) continue;
    if (step.next == Next::kClose) c.is_closing = true;
    return step;
  }
}

// After a session's turn: sets the events to wait for, and the time since when.
void Loop::Settle(Connection& c, const Step& step, bool moved_on) {
  c.is_waiting = step.next == Next::kWait;
  c.need = step.next == Next::kRead ? step.need : 0;
  c.is_large = step.is_large;
  bool is_half = step.next == Next::kRead && (step.in_request || !c.in.empty() || c.is_shaking_hands());
  if (!is_half && c.out.empty()) {
    c.stalled_ns = 0;
  } else if (c.stalled_ns == 0 || moved_on) {
    // Large requests and answers get more time, at a rate that any usable network has: a byte now and then is not
    // enough.
    c.stalled_ns = now_ns_;
    c.patience_ns =
        limits_.request_timeout_s * kSecondNs + std::max(c.need, c.out.size()) * (kSecondNs / kSlowestBytesPerS);
  }
  // A buffer that holds a slowly sent answer keeps its size.
  const size_t held = std::min(c.in.capacity(), 2 * c.in.size()) + (c.out.empty() ? 0 : c.out.capacity());
  c.account.Move(c.charged, held);
  c.charged = held;
  if (is_half && !c.account.HasRoomFor(0)) return Close(c);
  if (c.out.empty() && (c.is_closing || (is_draining_ && MayEnd(c)))) return Linger(c);
  if (step.next == Next::kFlush && c.out.empty()) return AdvanceHeld(c);  // too much for one turn
  if (c.stalled_ns != 0 || c.session == nullptr || c.session->idle_limit_s() != 0) has_deadlines_ = true;
  SetInterest(c);
}

// Sends out_; the connection keeps what the socket does not accept. False: the connection is broken.
bool Loop::Write(Connection& c) {
  if (c.tls != nullptr) {
    bool is_good = c.tls->Send(out_.data(), out_.size(), &c.out);
    out_.Clear();
    return is_good && FlushPending(c);
  }
  if (c.out.empty()) {
    c.out.Swap(out_);
    bool alive = FlushPending(c);
    // The loop takes its buffer back unless it holds the rest.
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
    if (is_draining_) c.sent_ns = NowNs();
  }
  return true;
}

void Loop::Finish(Connection& c, const Completion& completion, bool more) {
  if (!c.is_busy() || c.is_closing || c.is_lingering) return;
  bool reads_on = !c.is_waiting;
  if (c.session->owed() != 0) c.session->OnAnswer();
  c.is_waiting = false;
  c.is_closing = completion.close;
  out_.Append(completion.answer);
  // Answers that complete together are sent together.
  if (more && !c.is_closing && c.session->owed() != 0 && out_.size() < kFlushBytes) {
    c.is_waiting = !reads_on;
    return;
  }
  if (!Write(c)) return Close(c);
  if (reads_on && !c.is_closing) {
    Step step;
    step.need = c.need;
    return Settle(c, step, false);
  }
  if (c.is_closing || !c.out.empty()) {
    Step step;
    step.next = c.is_closing ? Next::kClose : Next::kFlush;
    return Settle(c, step, true);
  }
  try {
    AdvanceHeld(c);
  } catch (const std::exception&) {
    out_.Release();
    Close(c);
  }
}

void Loop::Linger(Connection& c) {
  c.in.Release();
  if (c.tls != nullptr) {
    c.tls->End(&c.out);
    FlushPending(c);
  }
  c.out.Release();
  c.account.Move(c.charged, 0);
  c.charged = 0;
  c.is_lingering = true;
  c.stalled_ns = now_ns_;
  has_deadlines_ = true;
  ::shutdown(c.fd.get(), SHUT_WR);
  SetInterest(c);
}

// Whether a drain may end the connection: everything that arrived is answered and sent, including the socket's buffer,
// and the peer had time to send requests in transit.
bool Loop::MayEnd(const Connection& c) const {
  if (c.is_lingering || c.is_busy() || c.stalled_ns != 0 || !c.in.empty() || !c.out.empty()) return false;
  const uint64_t moved_ns = std::max({c.received_ns, c.sent_ns, drain_began_ns_});
  const bool is_quiet = now_ns_ >= moved_ns + quiet_ns_ || now_ns_ >= drain_began_ns_ + kDrainQuietTimes * quiet_ns_;
  int unread = 0;
  return is_quiet && (::ioctl(c.fd.get(), FIONREAD, &unread) != 0 || unread == 0);
}

void Loop::SetInterest(Connection& c) {
  if (!c.out.empty()) return SetInterest(c, EPOLLOUT);
  c.out.Release();
  // Most clients send nothing while they wait for an answer: keeping the interest in input saves two system calls per
  // request.
  if (!(c.is_waiting || c.is_in_line) || (c.interest & EPOLLOUT) != 0) SetInterest(c, EPOLLIN);
}

void Loop::SetInterest(Connection& c, uint32_t wanted) {
  if (wanted == c.interest) return;
  epoll_event event{};
  event.events = wanted;
  event.data.u64 = c.id.slot | (c.id.serial << 32);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, c.fd.get(), &event);
  c.interest = wanted;
}

}  // namespace elasticctr::net
