#include "serve/http/control_queue.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "net/http/http.h"
#include "net/socket.h"
#include "serve/http/status.h"
#include "util/signals.h"
#include "util/status.h"

namespace elasticctr::serve {

ControlQueue::ControlQueue(const ControlOptions& options, Send send) : options_(options), send_(std::move(send)) {
  const BlockedSignals blocked;
  expirer_ = std::thread([this] { Expire(); });
}

ControlQueue::~ControlQueue() {
  Stop();
  expirer_.join();
}

bool ControlQueue::Post(ControlRequest request, Asker asker) {
  {
    std::lock_guard lock(mutex_);
    if (stopped_ || waiting_.size() >= options_.requests) return false;
    request.id = next_id_++;
    waiting_[request.id] = {std::move(asker), net::NowNs() + static_cast<uint64_t>(options_.timeout_s * 1e9)};
    queue_.push_back(std::move(request));
  }
  arrived_.notify_one();
  changed_.notify_one();
  return true;
}

bool ControlQueue::Next(double timeout_s, ControlRequest* request) {
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, std::chrono::duration<double>(timeout_s), [this] { return stopped_ || !queue_.empty(); });
  if (queue_.empty()) return false;
  *request = std::move(queue_.front());
  queue_.pop_front();
  return true;
}

void ControlQueue::Answer(uint64_t id, int status, std::string_view type, std::string_view body,
                          std::string_view headers) {
  Asker asker;
  {
    std::lock_guard lock(mutex_);
    auto found = waiting_.find(id);
    if (found == waiting_.end()) return;
    asker = std::move(found->second.asker);
    waiting_.erase(found);
  }
  if (asker.answered) asker.answered(status);
  send_(asker.connection, net::HttpAnswer(status, type, body, asker.keep_alive, headers, asker.head_only),
        !asker.keep_alive);
}

void ControlQueue::Stop() {
  std::map<uint64_t, Waiting> waiting;
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    waiting.swap(waiting_);
    queue_.clear();
  }
  arrived_.notify_all();
  changed_.notify_all();
  for (const auto& [id, one] : waiting) Refuse(one, false);
}

size_t ControlQueue::waiting() const {
  std::lock_guard lock(mutex_);
  return waiting_.size();
}

uint64_t ControlQueue::expired() const {
  std::lock_guard lock(mutex_);
  return expired_;
}

void ControlQueue::Refuse(const Waiting& waiting, bool is_late) {
  Error error =
      is_late ? Error(Code::kDeadlineExceeded, "no answer yet; what was asked for may still happen: see GET /v1/status")
              : Error(Code::kUnavailable, "the server is stopping");
  if (waiting.asker.answered) waiting.asker.answered(HttpStatusOf(error));
  send_(waiting.asker.connection, HttpErrorAnswer(error, waiting.asker.keep_alive, waiting.asker.head_only),
        !waiting.asker.keep_alive);
}

void ControlQueue::Expire() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    if (waiting_.empty()) {
      changed_.wait(lock, [this] { return stopped_ || !waiting_.empty(); });
      continue;
    }
    uint64_t now_ns = net::NowNs();
    auto first = waiting_.begin();
    if (first->second.deadline_ns > now_ns) {
      changed_.wait_for(lock, std::chrono::nanoseconds(first->second.deadline_ns - now_ns));
      continue;
    }
    Waiting late = std::move(first->second);
    std::erase_if(queue_, [id = first->first](const ControlRequest& request) { return request.id == id; });
    waiting_.erase(first);
    ++expired_;
    lock.unlock();
    Refuse(late, true);
    lock.lock();
  }
}

}  // namespace elasticctr::serve
