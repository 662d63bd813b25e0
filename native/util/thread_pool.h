// A small pool for data-parallel loops. The calling thread works too, so a pool of 1 starts no thread and
// every algorithm built on it also runs single-threaded.
//
// Threads: Run may be called from several threads; calls are serialised. A task must not call Run on the pool that runs
// it. Workers stay awake for two milliseconds after a call, yielding to other threads, and then sleep: the many short
// loops of a training step do not each pay for a wake-up.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace elasticctr {

class ThreadPool {
 public:
  // REQUIRES: threads >= 1.
  explicit ThreadPool(size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t size() const { return workers_.size() + 1; }

  // Calls fn(i) once for each i in [0, tasks) and returns when all calls are done. Tasks are handed out in order to
  // idle threads. The first exception thrown by a task is rethrown here.
  template <typename Fn>
  void Run(size_t tasks, Fn&& fn) {
    using Callable = std::remove_reference_t<Fn>;
    RunErased(
        tasks, [](void* context, size_t i) { (*static_cast<Callable*>(context))(i); },
        const_cast<void*>(static_cast<const void*>(&fn)));
  }

  // The process-wide pool, sized by SetDefaultThreads (default: the CPUs this process may use).
  static ThreadPool& Default();
  // Replaces the process-wide pool. REQUIRES: no Run on it is in progress.
  static void SetDefaultThreads(size_t threads);

 private:
  using Task = void (*)(void*, size_t);

  void RunErased(size_t tasks, Task task, void* context);
  void Drain();
  void Work();
  bool Enter(uint64_t* seen);

  std::vector<std::thread> workers_;
  std::mutex run_mutex_;

  // Generation of the current loop (upper half), whether it is closed to late workers, and how many workers are inside
  // it (lower half). A worker that wakes after the work is done never delays the caller.
  std::atomic<uint64_t> state_{kClosed};
  static constexpr uint64_t kGeneration = uint64_t{1} << 32;
  static constexpr uint64_t kClosed = uint64_t{1} << 31;
  static constexpr uint64_t kInside = kClosed - 1;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<bool> stopping_{false};

  Task task_ = nullptr;
  void* context_ = nullptr;
  size_t tasks_ = 0;
  std::atomic<size_t> next_{0};
  std::exception_ptr error_;
  std::mutex error_mutex_;
};

}  // namespace elasticctr
