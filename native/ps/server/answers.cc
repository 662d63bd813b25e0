#include "ps/server/answers.h"

#include <utility>

namespace elasticctr::ps {

uint64_t Answers::Open() {
  std::lock_guard lock(mutex_);
  slots_.emplace_back();
  return first_ + slots_.size() - 1;
}

void Answers::Append(std::string answer) {
  std::lock_guard lock(mutex_);
  slots_.push_back({true, std::move(answer)});
  Send();
}

void Answers::Fill(uint64_t place, std::string answer) {
  std::lock_guard lock(mutex_);
  Slot& slot = slots_[place - first_];
  slot.is_filled = true;
  slot.answer = std::move(answer);
  if (place + 1 == first_ + slots_.size()) is_held_.store(false, std::memory_order_release);
  Send();
}

// Under the lock, so that answers reach the loop in order.
void Answers::Send() {
  while (!slots_.empty() && slots_.front().is_filled) {
    server_->Complete(id_, std::move(slots_.front().answer), false);
    slots_.pop_front();
    ++first_;
  }
}

}  // namespace elasticctr::ps
