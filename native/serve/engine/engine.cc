#include "serve/engine/engine.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "net/socket.h"
#include "serve/engine/batch.h"
#include "serve/engine/job.h"
#include "util/gunzip.h"

namespace elasticctr::serve {
namespace {

constexpr auto kReleaseWait = std::chrono::seconds(2);
constexpr double kNewest = 0.1;  // weight of the newest batch in the estimate of costs
constexpr double kSurprise = 4;  // a batch counts as at most this multiple of its estimate: one stall is not a trend

// The estimated cost of an unread request: in bytes, with the overhead of one in the same unit.
uint64_t CostOf(const Job& job) {
  const Request& request = *job.request;
  constexpr uint32_t kMostPlain = 64u << 20;  // the stated size of a body is not trusted
  return request.body.size() + (request.is_gzip ? std::min(GunzippedBytes(request.body), kMostPlain) : 0) + 256;
}

size_t CountCores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace

struct Engine::Impl {
  explicit Impl(const EngineOptions& given) : options(given) {
    around.options = &options;
    around.stats = &stats;
    around.queue_shadow = [this](Job job) { QueueShadow(std::move(job)); };
    worker_count = options.workers > 0 ? options.workers : CountCores();
    for (size_t i = 0; i < worker_count; ++i) workers.emplace_back([this, i] { Work(i); });
  }

  // Why a request cannot be taken; null: it can. REQUIRES: mutex held.
  const char* WhyNot(uint64_t now, uint64_t deadline_ns);
  void Refuse(const Request& request, const Error& error);
  void QueueShadow(Job job);
  void Work(size_t number);
  // The next job, or false at the end. *share: the number of jobs a worker should take, this one included.
  bool TakeFirst(Job* job, size_t* share);
  // Another job, if one arrives by `until_ns`.
  bool TakeNext(Job* job, uint64_t until_ns);
  void Push(Job&& job);  // if it throws, the job is unchanged
  void Pop(Job* job);
  // Updates the estimates after a batch. REQUIRES: mutex held.
  void Learn(size_t requests, uint64_t cost, uint64_t took_ns);
  // How long a worker would need for the queue: by its number of requests or by its bytes, whichever is less. After
  // many small requests a byte seems expensive, after large ones a request does. REQUIRES: mutex held.
  double QueuedWorkNs() const;

  const EngineOptions options;
  EngineStats stats;
  size_t worker_count = 1;
  BatchContext around;

  std::mutex models_mutex;
  std::shared_ptr<const Models> models = std::make_shared<const Models>(std::vector<Model>());

  std::mutex mutex;                 // guards all below
  std::condition_variable wake;     // a job has arrived, or the engine stops
  std::condition_variable is_done;  // nothing is queued or in progress
  std::deque<Job> queue;
  uint64_t queued_cost = 0;
  double ns_per_cost = 0;  // of one worker
  double ns_per_request = 0;
  size_t idle = 0;
  size_t busy = 0;
  bool is_stopping = false;  // no new requests are accepted
  bool is_over = false;      // no more work is done

  std::mutex stop_mutex;
  std::vector<std::thread> workers;
};

const char* Engine::Impl::WhyNot(uint64_t now, uint64_t deadline_ns) {
  if (is_stopping) return "the server is stopping";
  if (queue.size() >= options.queue_requests) return "too many requests are waiting";
  if (!queue.empty()) {
    const uint64_t waited = now > queue.front().queued_ns ? now - queue.front().queued_ns : 0;
    // By the time the oldest request has waited too long, as many again are queued behind it: the queue's work must
    // stay below that limit too.
    const double work = QueuedWorkNs() / static_cast<double>(worker_count);
    const uint64_t wait = std::max(waited, static_cast<uint64_t>(work));
    if (wait > uint64_t{options.queue_ms} * 1'000'000) return "requests are waiting too long";
    if (now + wait > deadline_ns) return "requests are waiting longer than this one can";
  }
  return nullptr;
}

void Engine::Impl::Refuse(const Request& request, const Error& error) {
  stats.refused_full.fetch_add(1, std::memory_order_relaxed);
  AnswerError(request, nullptr, error);
  Observe(around, {&request, nullptr, nullptr, &error, nullptr, 0, 0, net::NowNs() - request.received_ns});
}

void Engine::Impl::QueueShadow(Job job) {
  job.queued_ns = job.request->received_ns = net::NowNs();
  job.deadline_ns = job.queued_ns + uint64_t{options.timeout_ms} * 1'000'000;
  {
    const std::lock_guard lock(mutex);
    if (!is_stopping && queue.size() < options.queue_requests / 2) {
      Push(std::move(job));
      if (idle > 0) wake.notify_one();
      return;
    }
  }
  stats.shadow_dropped.fetch_add(1, std::memory_order_relaxed);
}

void Engine::Impl::Push(Job&& job) {
  const uint64_t cost = CostOf(job);
  queue.push_back(std::move(job));
  queued_cost += cost;
}

void Engine::Impl::Learn(size_t requests, uint64_t cost, uint64_t took_ns) {
  const auto learn = [](double measured, double* known) {
    if (*known == 0) *known = measured;
    *known += kNewest * (std::min(measured, kSurprise * *known) - *known);
  };
  learn(static_cast<double>(took_ns) / static_cast<double>(cost), &ns_per_cost);
  learn(static_cast<double>(took_ns) / static_cast<double>(requests), &ns_per_request);
}

double Engine::Impl::QueuedWorkNs() const {
  return std::min(static_cast<double>(queued_cost) * ns_per_cost, static_cast<double>(queue.size()) * ns_per_request);
}

void Engine::Impl::Pop(Job* job) {
  queued_cost -= CostOf(queue.front());
  *job = std::move(queue.front());
  queue.pop_front();
}

bool Engine::Impl::TakeFirst(Job* job, size_t* share) {
  std::unique_lock lock(mutex);
  if (queue.empty() && busy == 0) is_done.notify_all();
  ++idle;
  wake.wait(lock, [this] { return !queue.empty() || is_over; });
  --idle;
  if (is_over) return false;
  ++busy;
  *share = (queue.size() + idle) / (idle + 1);
  Pop(job);
  return true;
}

bool Engine::Impl::TakeNext(Job* job, uint64_t until_ns) {
  std::unique_lock lock(mutex);
  if (queue.empty() && until_ns > 0) {
    const uint64_t now = net::NowNs();
    if (now < until_ns) {
      wake.wait_for(lock, std::chrono::nanoseconds(until_ns - now), [this] { return !queue.empty() || is_over; });
    }
  }
  if (queue.empty() || is_over) return false;
  Pop(job);
  return true;
}

void Engine::Impl::Work(size_t number) {
  Batch batch(around, net::NowNs() + (number << 48));
  Job job;
  size_t share;
  while (TakeFirst(&job, &share)) {
    const uint64_t until_ns = options.batch_wait_us > 0 ? net::NowNs() + uint64_t{options.batch_wait_us} * 1000 : 0;
    {
      const std::lock_guard lock(models_mutex);
      batch.Begin(models);
    }
    const uint64_t began_ns = net::NowNs();
    uint64_t cost = CostOf(job);
    size_t taken = 1;
    batch.Add(std::move(job));
    for (; batch.samples() < options.batch_samples && (taken < share || until_ns > 0); ++taken) {
      if (!TakeNext(&job, taken < share ? 0 : until_ns)) break;
      cost += CostOf(job);
      batch.Add(std::move(job));
    }
    batch.Finish();
    const std::lock_guard lock(mutex);
    Learn(taken, cost, net::NowNs() - began_ns);
    --busy;
  }
}

Engine::Engine(const EngineOptions& options) : impl_(std::make_unique<Impl>(options)) {}

Engine::~Engine() { Stop(0); }

void Engine::SetModels(std::shared_ptr<const Models> models) {
  {
    const std::lock_guard lock(impl_->models_mutex);
    std::swap(impl_->models, models);
  }
  const auto end = std::chrono::steady_clock::now() + kReleaseWait;
  while (models.use_count() > 1 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::shared_ptr<const Models> Engine::models() const {
  const std::lock_guard lock(impl_->models_mutex);
  return impl_->models;
}

void Engine::Submit(std::unique_ptr<Request> request) {
  const uint64_t now = net::NowNs();
  if (request->received_ns == 0) request->received_ns = now;
  const uint64_t longest = request->received_ns + uint64_t{impl_->options.timeout_ms} * 1'000'000;
  const uint64_t deadline_ns = request->deadline_ns > 0 ? request->deadline_ns : longest;
  Job job{std::move(request), now, deadline_ns, {}, {}};
  const char* why_not;
  bool is_wanted = false;
  {
    const std::lock_guard lock(impl_->mutex);
    why_not = impl_->WhyNot(now, deadline_ns);
    if (why_not == nullptr) {
      try {
        impl_->Push(std::move(job));
        is_wanted = impl_->idle > 0;
      } catch (const std::bad_alloc&) {
        why_not = "out of memory";
      }
    }
  }
  // Outside the lock, or the woken thread would wait for it.
  if (is_wanted) impl_->wake.notify_one();
  if (why_not == nullptr) return;
  impl_->Refuse(*job.request, RetryLater(why_not, std::max(impl_->options.queue_ms, 1u)));
}

void Engine::OnFinished(std::function<void(const Finished&)> observer, bool shadows) {
  impl_->around.observers.push_back({std::move(observer), shadows});
}

void Engine::Stop(double drain_s) {
  const std::lock_guard stopping(impl_->stop_mutex);
  std::deque<Job> left;
  {
    std::unique_lock lock(impl_->mutex);
    impl_->is_stopping = true;
    std::erase_if(impl_->queue, [this](const Job& job) {
      if (job.request->is_shadow) impl_->queued_cost -= CostOf(job);
      return job.request->is_shadow;
    });
    impl_->is_done.wait_for(lock, std::chrono::duration<double>(std::clamp(drain_s, 0.0, 1e6)),
                            [this] { return impl_->queue.empty() && impl_->busy == 0; });
    impl_->is_over = true;
    left.swap(impl_->queue);
    impl_->queued_cost = 0;
    impl_->wake.notify_all();
  }
  for (const Job& job : left) impl_->Refuse(*job.request, RetryLater("the server is stopping", 1000));
  for (std::thread& worker : impl_->workers) worker.join();
  impl_->workers.clear();
}

const EngineStats& Engine::stats() const { return impl_->stats; }

size_t Engine::queued() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->queue.size();
}

const EngineOptions& Engine::options() const { return impl_->options; }

}  // namespace elasticctr::serve
