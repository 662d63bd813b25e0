#include "cube/server/graveyard.h"

#include <chrono>

namespace elasticctr::cube {
namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(5);

}  // namespace

Graveyard::~Graveyard() {
  {
    std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Graveyard::Bury(std::shared_ptr<const void> dead) {
  if (dead == nullptr) return;
  {
    std::lock_guard lock(mutex_);
    dead_.push_back(std::move(dead));
    if (!thread_.joinable()) thread_ = std::thread([this] { Work(); });
  }
  wake_.notify_all();
}

void Graveyard::Work() {
  std::unique_lock lock(mutex_);
  while (!is_stopping_) {
    if (dead_.empty()) {
      wake_.wait(lock);
      continue;
    }
    std::vector<std::shared_ptr<const void>> free;
    for (size_t i = 0; i < dead_.size();) {
      // Nobody can take a new reference to an object that is held only here.
      if (dead_[i].use_count() == 1) {
        free.push_back(std::move(dead_[i]));
        dead_[i] = std::move(dead_.back());
        dead_.pop_back();
      } else {
        ++i;
      }
    }
    if (free.empty()) {
      wake_.wait_for(lock, kLookEvery);
      continue;
    }
    lock.unlock();
    free.clear();
    lock.lock();
  }
}

}  // namespace elasticctr::cube
