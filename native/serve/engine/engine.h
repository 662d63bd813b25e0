// Takes requests from sessions, groups queued ones into micro-batches, scores and answers them.
//
// A worker takes what has queued up, reads it, routes each request to a variant and scores requests of one version
// together: one lookup and one run of the graph per micro-batch. Batches grow under load; batch_wait_us makes an idle
// worker wait for more requests. A request that cannot be answered in time is refused at once, not queued: kUnavailable
// with RetryLater, which protocols map to 429 and RESOURCE_EXHAUSTED. A request that times out in the queue gets
// DeadlineExceeded; one that is being scored is answered even if that takes longer.
//
// A worker takes at most its share while others are idle. A shadow is a copy of the request, queued behind all others
// after its answer was sent, and dropped when the queue is half full.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "serve/codec/codec.h"
#include "serve/engine/models.h"
#include "serve/engine/stats.h"

namespace elasticctr::serve {

struct EngineOptions {
  size_t workers = 0;          // 0: one per core
  size_t batch_samples = 256;  // a micro-batch takes no further request beyond this
  uint32_t batch_wait_us = 0;
  size_t queue_requests = 10'000;
  uint32_t queue_ms = 100;     // refuse when the oldest request waits longer, or the queued work takes longer
  uint32_t timeout_ms = 1000;  // of a request without a deadline
  Limits limits;
};

// A finished request, for access log and request log. Pointers are valid during the call.
struct Finished {
  const Request* request;
  const Parsed* parsed;    // null: unreadable
  const Reply* reply;      // null: an error
  const Error* error;      // null: a reply
  const Samples* samples;  // null: it failed earlier
  size_t request_in_samples;
  uint64_t queue_ns, total_ns;
};

class Engine {
 public:
  explicit Engine(const EngineOptions& options);
  ~Engine();

  // Routes later requests by `models`. Waits until the current batches are done with the previous ones (at most two
  // seconds), so that the caller frees them and not a worker.
  void SetModels(std::shared_ptr<const Models> models);
  std::shared_ptr<const Models> models() const;

  // Answers by request->answer, now (refused) or later, exactly once. Any thread.
  void Submit(std::unique_ptr<Request> request);
  // Called by workers after each request (not for shadows unless `shadows`), and by Submit for refused ones. Exceptions
  // are ignored. There may be several. Set before the first Submit.
  void OnFinished(std::function<void(const Finished&)> observer, bool shadows = false);

  // Refuses new requests, answers everything queued within drain_s, then refuses the rest; joins the workers.
  void Stop(double drain_s);

  const EngineStats& stats() const;
  size_t queued() const;
  const EngineOptions& options() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace elasticctr::serve
