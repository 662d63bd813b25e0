// Takes requests from sessions, makes micro-batches of what waits, scores them, answers.
//
// A worker takes what has queued up, reads it, routes each request to a variant and scores those of one version
// together: one lookup and one run of the graph per micro-batch. Under load batches grow by themselves; batch_wait_us
// makes an idle worker wait for more requests. A request that cannot be answered in time is refused at once, not
// queued: kUnavailable with RetryLater, which protocols call 429 and RESOURCE_EXHAUSTED. One whose time runs out in the
// queue gets DeadlineExceeded; one that is being scored is answered even if that takes longer.
//
// A worker takes no more than its share while others are idle. A shadow is the request again, queued behind all others
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
  size_t batch_samples = 256;  // a micro-batch takes no further request beyond so many
  uint32_t batch_wait_us = 0;
  size_t queue_requests = 10'000;
  uint32_t queue_ms = 100;  // a request is refused when the oldest one waits longer, or what waits is work for longer
  uint32_t timeout_ms = 1000;  // of a request that names no deadline
  Limits limits;
};

// What a finished request was; for access log and request log. Pointers live as long as the call.
struct Finished {
  const Request* request;
  const Parsed* parsed;    // null: unreadable
  const Reply* reply;      // null: an error
  const Error* error;      // null: a reply
  const Samples* samples;  // null: never got that far
  size_t request_in_samples;
  uint64_t queue_ns, total_ns;
};

class Engine {
 public:
  explicit Engine(const EngineOptions& options);
  ~Engine();

  // Requests taken from now on are routed by `models`. Waits until the batches under way are done with those before
  // (two seconds at most), so that what they held is freed by the caller and not by a worker.
  void SetModels(std::shared_ptr<const Models> models);
  std::shared_ptr<const Models> models() const;

  // Answers by request->answer, now (refused) or later, always once. Any thread.
  void Submit(std::unique_ptr<Request> request);
  // Called by workers after each request (not for shadows unless `shadows`), and by Submit for one it refuses. What it
  // throws is dropped. There may be several. Set before the first Submit.
  void OnFinished(std::function<void(const Finished&)> observer, bool shadows = false);

  // Takes nothing more, answers everything queued within drain_s, then refuses the rest; joins the workers.
  void Stop(double drain_s);

  const EngineStats& stats() const;
  size_t queued() const;
  const EngineOptions& options() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace elasticctr::serve
