#include "ps/client/link.h"

#include <sys/epoll.h>

#include <algorithm>

#include "net/address.h"
#include "net/socket.h"
#include "ps/client/attached.h"
#include "util/status_table.h"

namespace elasticctr::ps {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kFirstPauseMs = 20, kLongestPauseMs = 1000;
constexpr uint64_t kConnectMs = 5000;  // to connect, to send hello and to attach, each
constexpr size_t kMaxPieces = 32;      // frames passed to the system at a time
constexpr uint64_t kNever = ~uint64_t{0};
constexpr uint32_t kAlways = EPOLLIN | EPOLLRDHUP | EPOLLET;  // the events always waited for
constexpr uint32_t kMaxRefusalBytes = 64 * 1024;

// Whether a repeated request may get another answer.
bool IsPassing(const net::wire::Header& header) {
  return header.status == static_cast<uint8_t>(Code::kUnavailable) ||
         (header.status == static_cast<uint8_t>(Code::kDeadlineExceeded) &&
          header.detail == static_cast<uint16_t>(Detail::kGroupLate));
}

}  // namespace

Link::Link(const ClientOptions& options, uint32_t shard, int epoll, LinkCounters* counters,
           std::function<void()> on_ready, std::shared_ptr<net::TlsClient> tls)
    : options_(options),
      shard_(shard),
      epoll_(epoll),
      counters_(counters),
      on_ready_(std::move(on_ready)),
      tls_(std::move(tls)),
      address_(options.addresses[shard]),
      incarnation_(options.incarnation) {
  net::CheckAddress(address_);
  SetState(Phase::kPausing, "not connected yet");
}

Link::~Link() = default;

void Link::Submit(std::shared_ptr<Request> request, uint64_t now) {
  if (phase_ == Phase::kRefused && request->deadline_ns != 0) return request->OnError(*refusal_);
  request->SetHeader(next_id_++, incarnation_, options_.job);
  if (queue_.empty()) heard_ns_ = now;
  queue_.push_back(std::move(request));
  if (phase_ == Phase::kReady) {
    try {
      Transmit();
    } catch (const Error& error) {
      HangUp(error.what(), now);
    }
  }
}

void Link::SetAddress(const std::string& address, uint64_t incarnation, uint64_t now) {
  incarnation_ = incarnation;
  if (address == address_ && phase_ != Phase::kRefused) return;
  address_ = address;
  pause_ms_ = 0;
  refusal_.reset();
  HangUp("it moved to " + address, now);
  resume_ns_ = now;
}

void Link::Remove(const std::function<bool(const Request&)>& ask) {
  const size_t on_wire = sent_ + (offset_ > 0 ? 1 : 0);
  for (size_t i = 0; i < std::min(on_wire, queue_.size()); ++i) {
    if (!queue_[i]->is_abandoned && ask(*queue_[i])) queue_[i]->is_abandoned = true;
  }
  if (on_wire < queue_.size()) {
    const auto first = queue_.begin() + static_cast<ptrdiff_t>(on_wire);
    queue_.erase(std::remove_if(first, queue_.end(), [&](const auto& request) { return ask(*request); }), queue_.end());
  }
}

void Link::Connect(uint64_t now) {
  resume_ns_ = now + kConnectMs * kMs;
  try {
    const net::SocketAddress address = net::Resolve(address_, true);
    connection_ = std::make_unique<net::Connection>(address, tls_.get(), net::HostOf(address_));
    if (address.storage.ss_family == AF_UNIX) net::SetSendRoom(connection_->fd(), kUnixSendRoom);
    epoll_event event{kAlways | EPOLLOUT, {}};
    event.data.u32 = shard_;
    is_blocked_ = true;
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, connection_->fd(), &event) != 0) {
      throw Error(Code::kUnavailable, "the system takes no more sockets");
    }
    SetState(Phase::kConnecting, trouble_);
  } catch (const Error& error) {
    HangUp(error.what(), now);
  }
}

// Drops the connection but not the requests: they are sent again over the next one.
void Link::HangUp(const std::string& why, uint64_t now) {
  Forget();
  for (size_t i = 0; i < queue_.size(); ++i) {
    const bool was_sent = i < sent_ || (i == sent_ && offset_ > 0);
    if (was_sent && queue_[i]->opcode() == Opcode::kPush && !queue_[i]->is_abandoned) {
      counters_->resent.fetch_add(1, std::memory_order_relaxed);
    }
  }
  std::erase_if(queue_, [](const auto& request) { return request->is_abandoned; });
  for (const auto& request : queue_) {
    request->SetHeader(request->id(), incarnation_, options_.job);
    request->OnResend();
  }
  sent_ = offset_ = 0;
  pause_ms_ = std::clamp(pause_ms_ * 2, kFirstPauseMs, kLongestPauseMs);
  resume_ns_ = now + pause_ms_ * kMs;
  SetState(Phase::kPausing, why);
}

void Link::Forget() {
  connection_.reset();
  greeting_.reset();
  greeting_offset_ = 0;
  answer_.Reset();
}

// The pserver rejects this client: repeating the request would not help. Pushes are kept until SetAddress.
void Link::Refuse(Code code, const std::string& why) {
  Forget();
  sent_ = offset_ = 0;
  refusal_ = Failure{code, Name() + ": " + why, {}, 0, 0};
  SetState(Phase::kRefused, why);
  std::erase_if(queue_, [this](const auto& request) {
    if (!request->is_abandoned && request->deadline_ns != 0) request->OnError(*refusal_);
    return request->is_abandoned || request->deadline_ns != 0;
  });
}

void Link::Greet(Opcode opcode, const std::string& body) {
  greeting_ = std::make_shared<TextRequest>(opcode, body, std::make_shared<Gate>(1));
  greeting_->SetHeader(next_id_++, incarnation_, options_.job);
  greeting_offset_ = 0;
  SetState(opcode == Opcode::kHello ? Phase::kGreeting : Phase::kAttaching, trouble_);
  Transmit();
}

void Link::Transmit() {
  connection_->Flush();
  const bool is_all = SendAll();
  Watch(!is_all || connection_->has_unsent());
}

// Waits for room in the socket only when it is needed: a pserver that reads reports room for every part.
void Link::Watch(bool is_blocked) {
  if (is_blocked == is_blocked_) return;
  epoll_event event{kAlways | (is_blocked ? uint32_t{EPOLLOUT} : 0u), {}};
  event.data.u32 = shard_;
  if (epoll_ctl(epoll_, EPOLL_CTL_MOD, connection_->fd(), &event) != 0) {
    throw Error(Code::kUnavailable, "the system watches its socket no more");
  }
  is_blocked_ = is_blocked;
}

// False: the socket accepts no more for now.
bool Link::SendAll() {
  if (greeting_) {
    const iovec piece{const_cast<uint8_t*>(greeting_->frame()) + greeting_offset_,
                      greeting_->frame_bytes() - greeting_offset_};
    if (piece.iov_len > 0) greeting_offset_ += connection_->Send(&piece, 1);
    return greeting_offset_ == greeting_->frame_bytes();
  }
  while (sent_ < queue_.size()) {
    iovec pieces[kMaxPieces];
    size_t count = 0, wanted = 0;
    for (size_t i = sent_; i < queue_.size() && count < kMaxPieces; ++i, ++count) {
      const size_t skipped = i == sent_ ? offset_ : 0;
      pieces[count] = {const_cast<uint8_t*>(queue_[i]->frame()) + skipped, queue_[i]->frame_bytes() - skipped};
      wanted += pieces[count].iov_len;
    }
    const size_t taken = connection_->Send(pieces, static_cast<int>(count));
    counters_->sent_bytes.fetch_add(taken, std::memory_order_relaxed);
    for (size_t left = taken; left > 0;) {
      const size_t rest = queue_[sent_]->frame_bytes() - offset_;
      if (left < rest) {
        offset_ += left;
        break;
      }
      left -= rest;
      offset_ = 0;
      ++sent_;
    }
    if (taken < wanted) return false;
  }
  return true;
}

void Link::OnEvents(uint32_t events, uint64_t now) {
  if (!connection_) return;
  try {
    if (phase_ == Phase::kConnecting) {
      if ((events & (EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP)) == 0) return;
      if (!connection_->FinishConnecting()) return;
      Greet(Opcode::kHello, options_.token);
    } else if ((events & EPOLLOUT) != 0) {
      Transmit();
    }
    const bool is_ending = (events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) != 0;
    if ((events & EPOLLIN) != 0 || is_ending) Receive(is_ending, now);
  } catch (const Error& error) {
    // Invalid bytes would be invalid again: fail the request.
    if (error.code() == Code::kCorruption && !greeting_ && sent_ > 0 && queue_.front()->deadline_ns != 0) {
      const auto request = queue_.front();
      if (!request->is_abandoned) {
        request->OnError(
            {Code::kCorruption, Name() + ": " + error.what() + "; is that address a pserver of this build?", {}, 0, 0});
      }
      request->is_abandoned = true;
    }
    HangUp(error.what(), now);
  }
}

// Reads all available bytes; `is_ending`: up to the end, which would not be announced again.
void Link::Receive(bool is_ending, uint64_t now) {
  const net::Connection* const current = connection_.get();
  while (connection_ && connection_.get() == current) {
    if (answer_.is_whole()) {
      TakeAnswer(now);
      continue;
    }
    bool is_drained = false;
    const size_t bytes = answer_.Receive(connection_.get(), &is_drained);
    if (bytes == 0) return;
    heard_ns_ = now;
    counters_->received_bytes.fetch_add(bytes, std::memory_order_relaxed);
    if (answer_.is_undecided()) TakeHeader();
    if (is_drained && !is_ending) return;
  }
}

void Link::TakeHeader() {
  const net::wire::Header& header = answer_.header();
  Request* const request = greeting_ ? greeting_.get() : sent_ > 0 ? queue_.front().get() : nullptr;
  if (request == nullptr) throw Error(Code::kCorruption, "sent an answer without a request");
  if (header.id != request->id() || header.opcode != static_cast<uint8_t>(request->opcode())) {
    // A pserver that closes the connection because of an invalid frame may not know which.
    if (header.id != 0 || !IsCode(header.status)) throw Error(Code::kCorruption, "answered another request");
  }
  if (header.status == 0) {
    if (header.body_bytes > kMaxBodyBytes) throw Error(Code::kCorruption, "sent an answer that is too long");
    answer_.places()->clear();
    request->Place(header, answer_.places());
    answer_.Begin();
  } else {
    if (!IsCode(header.status) || header.body_bytes > kMaxRefusalBytes) {
      throw Error(Code::kCorruption, "sent an invalid refusal");
    }
    answer_.BeginText();
  }
}

void Link::TakeAnswer(uint64_t now) {
  const net::wire::Header header = answer_.header();
  answer_.Reset();
  if (header.status != 0) return TakeRefusal(header, now);
  if (greeting_) return TakeGreeting(now);
  const std::shared_ptr<Request> request = queue_.front();
  if (!request->is_abandoned) request->OnAnswer(header);
  queue_.pop_front();
  --sent_;
  pause_ms_ = 0;
}

void Link::TakeRefusal(const net::wire::Header& header, uint64_t now) {
  if (IsPassing(header)) return HangUp(answer_.text(), now);
  if (greeting_) {
    return Refuse(static_cast<Code>(header.status), answer_.text());
  }
  const std::shared_ptr<Request> request = queue_.front();
  queue_.pop_front();
  --sent_;
  if (!request->is_abandoned) request->OnError(request->ToFailure(header, Name() + ": " + answer_.text()));
}

void Link::TakeGreeting(uint64_t now) {
  const std::shared_ptr<TextRequest> greeting = std::move(greeting_);
  greeting_.reset();
  if (greeting->opcode() == Opcode::kHello && !options_.attach.empty()) return Greet(Opcode::kAttach, options_.attach);
  if (greeting->opcode() == Opcode::kAttach) {
    try {
      CheckAttached(greeting->answer(), options_, shard_);
    } catch (const Error& error) {
      if (error.code() != Code::kFailedPrecondition) throw Error(Code::kCorruption, error.what());
      return Refuse(error.code(), error.what());
    }
  }
  if (was_ready_) counters_->reconnects.fetch_add(1, std::memory_order_relaxed);
  was_ready_ = true;
  heard_ns_ = now;
  SetState(Phase::kReady, trouble_);
  on_ready_();
  Transmit();
}

void Link::Expire(uint64_t now) {
  for (size_t i = 0; i < queue_.size();) {
    Request& request = *queue_[i];
    if (request.is_abandoned || request.deadline_ns == 0 || request.deadline_ns > now) {
      ++i;
      continue;
    }
    request.OnError(Unreached());
    request.is_abandoned = true;
    const bool is_on_wire = i < sent_ || (i == sent_ && offset_ > 0);
    if (is_on_wire) {
      ++i;
    } else {
      queue_.erase(queue_.begin() + static_cast<ptrdiff_t>(i));
    }
  }
}

Failure Link::Unreached() const {
  if (phase_ == Phase::kReady) {
    return {Code::kDeadlineExceeded,
            Name() + " did not answer in time; it is overloaded or stopped: look at its log",
            {},
            0,
            0};
  }
  return {Code::kUnavailable,
          Name() + " could not be asked in time: " + trouble_ +
              "; the coordinator replaces a lost pserver, `elasticctr status` shows them",
          {},
          0,
          0};
}

// When to give up on a pserver that does not answer. Requests with a deadline wait for that.
uint64_t Link::StuckAt() const {
  if (phase_ != Phase::kReady || sent_ == 0) return kNever;
  const Request& first = *queue_.front();
  if (first.deadline_ns != 0 && !first.is_abandoned) return kNever;
  return heard_ns_ + (options_.timeout_ms + first.patience_ms()) * kMs;
}

uint64_t Link::OnTime(uint64_t now) {
  Expire(now);
  if (phase_ == Phase::kPausing && now >= resume_ns_) Connect(now);
  const bool is_opening = phase_ == Phase::kConnecting || phase_ == Phase::kGreeting || phase_ == Phase::kAttaching;
  if (is_opening && now >= resume_ns_) {
    HangUp("no answer to a greeting within " + std::to_string(kConnectMs / 1000) + " s", now);
  } else if (now >= StuckAt()) {
    HangUp("silent for " + std::to_string(options_.timeout_ms / 1000) + " s", now);
  }
  uint64_t next = phase_ == Phase::kReady || phase_ == Phase::kRefused ? kNever : resume_ns_;
  next = std::min(next, StuckAt());
  for (const auto& request : queue_) {
    if (!request->is_abandoned && request->deadline_ns != 0) next = std::min(next, request->deadline_ns);
  }
  return next;
}

void Link::Close() {
  Forget();
  for (const auto& request : queue_) {
    if (!request->is_abandoned) {
      request->OnError({Code::kUnavailable, Name() + ": the client was closed", {}, 0, 0});
    }
  }
  queue_.clear();
  sent_ = offset_ = 0;
}

std::string Link::Name() const { return "pserver " + std::to_string(shard_) + " (" + address_ + ")"; }

void Link::SetState(Phase phase, const std::string& trouble) {
  phase_ = phase;
  if (trouble != trouble_) trouble_ = trouble;
  std::lock_guard lock(state_mutex_);
  shown_ = {address_, phase == Phase::kReady, trouble_};
}

LinkState Link::state() const {
  std::lock_guard lock(state_mutex_);
  return shown_;
}

}  // namespace elasticctr::ps
