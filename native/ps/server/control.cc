#include "ps/server/control.h"

#include <utility>

namespace elasticctr::ps {

Control::Control() : thread_([this] { Run(); }) {}

Control::~Control() {
  {
    std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

bool Control::Post(std::function<void()> job) {
  std::lock_guard lock(mutex_);
  if (jobs_.size() >= kMaxWaiting) return false;
  jobs_.push_back(std::move(job));
  wake_.notify_all();
  return true;
}

void Control::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return is_stopping_ || !jobs_.empty(); });
    if (is_stopping_) return;
    const auto job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

}  // namespace elasticctr::ps
