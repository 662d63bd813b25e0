// The thread that carries out orders (save, load, evict …) one after another, so that no event loop waits for a disk.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace elasticctr::ps {

class Control {
 public:
  static constexpr size_t kMaxWaiting = 64;

  Control();
  // Drops queued jobs and waits for the running one.
  ~Control();
  // False: the queue is full.
  bool Post(std::function<void()> job);

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace elasticctr::ps
