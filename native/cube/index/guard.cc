#include "cube/index/guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <mutex>

#include "util/status.h"

namespace elasticctr::cube {
namespace {

constexpr size_t kSlots = 16'384;

// The handler searches these without a lock. `begin` is set last and cleared first; 0: free.
struct Slot {
  std::atomic<uintptr_t> begin{0}, end{0};
  std::atomic<std::atomic<bool>*> is_damaged{nullptr};
};

Slot slots[kSlots];
std::atomic<size_t> used_slots{0};
std::mutex slots_mutex;
struct sigaction before;

void PassOn(int signal, siginfo_t* info, void* context) {
  if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != nullptr)
    return before.sa_sigaction(signal, info, context);
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) return before.sa_handler(signal);
  // The instruction runs again without a handler.
  struct sigaction by_default = {};
  by_default.sa_handler = SIG_DFL;
  sigaction(SIGBUS, &by_default, nullptr);
}

void OnBusError(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  const size_t used = used_slots.load(std::memory_order_acquire);
  for (size_t i = 0; i < used; ++i) {
    const uintptr_t begin = slots[i].begin.load(std::memory_order_acquire);
    if (begin == 0 || address < begin || address >= slots[i].end.load(std::memory_order_relaxed)) continue;
    slots[i].is_damaged.load(std::memory_order_relaxed)->store(true, std::memory_order_release);
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    void* start = reinterpret_cast<void*>(address / page * page);
    // A direct system call, because ThreadSanitizer takes libc's mmap for a write to the page that other threads read.
    if (syscall(SYS_mmap, start, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != -1) return;
    break;
  }
  PassOn(signal, info, context);
}

// Repeated for every guard: others may have installed handlers meanwhile. REQUIRES: slots_mutex is held.
void Install() {
  struct sigaction now = {};
  sigaction(SIGBUS, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == OnBusError) return;
  before = now;
  struct sigaction ours = {};
  ours.sa_sigaction = OnBusError;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&ours.sa_mask);
  sigaction(SIGBUS, &ours, nullptr);
}

int64_t NowS() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec;
}

}  // namespace

Guard::Guard(const void* data, size_t bytes, int fd) : bytes_(bytes), fd_(fd) {
  std::lock_guard lock(slots_mutex);
  const size_t used = used_slots.load(std::memory_order_relaxed);
  for (slot_ = 0; slot_ < used && slots[slot_].begin.load(std::memory_order_relaxed) != 0;) ++slot_;
  if (slot_ == kSlots) {
    close(fd_);
    throw Error(Code::kInternal, "over " + std::to_string(kSlots) + " files are mapped; retire some versions");
  }
  Install();
  const auto begin = reinterpret_cast<uintptr_t>(data);
  slots[slot_].is_damaged.store(&is_damaged_, std::memory_order_relaxed);
  slots[slot_].end.store(begin + bytes, std::memory_order_relaxed);
  slots[slot_].begin.store(begin, std::memory_order_release);
  if (slot_ == used) used_slots.store(used + 1, std::memory_order_release);
}

Guard::~Guard() {
  {
    std::lock_guard lock(slots_mutex);
    slots[slot_].begin.store(0, std::memory_order_release);
  }
  close(fd_);
}

bool Guard::IsDue() const {
  const int64_t now_s = NowS();
  int64_t due_s = next_look_s_.load(std::memory_order_relaxed);
  return now_s >= due_s && next_look_s_.compare_exchange_strong(due_s, now_s + 1, std::memory_order_relaxed);
}

bool Guard::LookAtSize() const {
  struct stat status;
  if (fstat(fd_, &status) != 0 || static_cast<uint64_t>(status.st_size) >= bytes_) return false;
  is_damaged_.store(true, std::memory_order_release);
  return true;
}

}  // namespace elasticctr::cube
