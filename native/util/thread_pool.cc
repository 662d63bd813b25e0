#include "util/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <memory>

namespace elasticctr {
namespace {

// A worker waits for the next loop first by spinning, then by yielding its core to other threads, and only then by
// sleeping. Waking a sleeper costs tens of microseconds and often puts it on the caller's own core. In a training step,
// whose loops are a fraction of a millisecond apart, that would halve the machine.
constexpr int kSpins = 1000;
constexpr auto kYielding = std::chrono::milliseconds(2);

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

size_t UsableCpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<size_t>(CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

std::mutex default_mutex;
std::unique_ptr<ThreadPool> default_pool;

}  // namespace

ThreadPool::ThreadPool(size_t threads) {
  for (size_t i = 1; i < threads; ++i) workers_.emplace_back([this] { Work(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    state_.fetch_add(kGeneration);
  }
  wake_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::RunErased(size_t tasks, Task task, void* context) {
  if (tasks == 0) return;
  if (workers_.empty() || tasks == 1) {
    for (size_t i = 0; i < tasks; ++i) task(context, i);
    return;
  }
  std::lock_guard run_lock(run_mutex_);
  task_ = task;
  context_ = context;
  tasks_ = tasks;
  next_.store(0, std::memory_order_relaxed);
  error_ = nullptr;
  {
    std::lock_guard lock(mutex_);
    const uint64_t generation = (state_.load(std::memory_order_relaxed) / kGeneration + 1) * kGeneration;
    state_.store(generation, std::memory_order_release);
  }
  wake_.notify_all();
  Drain();
  state_.fetch_or(kClosed, std::memory_order_acq_rel);
  for (int spin = 0; (state_.load(std::memory_order_acquire) & kInside) != 0; ++spin) {
    if (spin < kSpins) {
      Pause();
    } else {
      std::this_thread::yield();
    }
  }
  if (error_) std::rethrow_exception(error_);
}

void ThreadPool::Drain() {
  for (size_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < tasks_;) {
    try {
      task_(context_, i);
    } catch (...) {
      std::lock_guard lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }
}

// Joins a loop of a new generation, unless it is already closed.
bool ThreadPool::Enter(uint64_t* seen) {
  uint64_t state = state_.load(std::memory_order_acquire);
  for (;;) {
    *seen = state / kGeneration;
    if (state & kClosed) return false;
    if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel)) return true;
  }
}

void ThreadPool::Work() {
  uint64_t seen = 0;
  const auto is_new = [&] { return state_.load(std::memory_order_acquire) / kGeneration != seen; };
  for (;;) {
    for (int spin = 0; spin < kSpins && !is_new(); ++spin) Pause();
    const auto deadline = std::chrono::steady_clock::now() + kYielding;
    while (!is_new() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    if (!is_new()) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, is_new);
    }
    if (stopping_) return;
    if (!Enter(&seen)) continue;
    Drain();
    state_.fetch_sub(1, std::memory_order_release);
  }
}

ThreadPool& ThreadPool::Default() {
  std::lock_guard lock(default_mutex);
  if (!default_pool) default_pool = std::make_unique<ThreadPool>(UsableCpus());
  return *default_pool;
}

void ThreadPool::SetDefaultThreads(size_t threads) {
  std::lock_guard lock(default_mutex);
  default_pool = std::make_unique<ThreadPool>(std::max<size_t>(threads, 1));
}

}  // namespace elasticctr
