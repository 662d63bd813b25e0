// Queues requests other than predictions for Python. Bounded in number and time: requests beyond the bound are refused,
// and unanswered ones get a 504 after the timeout (the work itself may continue).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "net/loop/session.h"

namespace elasticctr::serve {

struct ControlRequest {
  uint64_t id = 0;
  std::string method;
  std::string path;
  std::string query;
  std::string authorization;
  std::string body;
};

struct ControlOptions {
  size_t requests = 64;   // waiting or being processed
  double timeout_s = 60;  // for an answer
};

class ControlQueue {
 public:
  // The recipient of an answer. Any thread may call it.
  struct Asker {
    net::ConnectionId connection;
    bool keep_alive = true;
    bool head_only = false;
    std::function<void(int status)> answered;  // for logs
    net::Charge charge;                        // of the request's body, until it is answered
  };
  using Send = std::function<void(net::ConnectionId, std::string bytes, bool close)>;

  ControlQueue(const ControlOptions& options, Send send);
  ~ControlQueue();

  // False: full.
  bool Post(ControlRequest request, Asker asker);
  // The next request, for Python; false: none arrived within timeout_s, or the queue was stopped.
  bool Next(double timeout_s, ControlRequest* request);
  // `headers` are additional header lines, each with its CRLF. An id that is no longer waiting is ignored.
  void Answer(uint64_t id, int status, std::string_view type, std::string_view body, std::string_view headers);
  // Answers all waiting requests with 503; later ones are refused.
  void Stop();

  size_t waiting() const;
  uint64_t expired() const;

 private:
  struct Waiting {
    Asker asker;
    uint64_t deadline_ns;
  };

  void Expire();
  void Refuse(const Waiting& waiting, bool is_late);

  const ControlOptions options_;
  const Send send_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_, changed_;
  std::deque<ControlRequest> queue_;
  std::map<uint64_t, Waiting> waiting_;  // by id and therefore by deadline
  uint64_t next_id_ = 1;
  uint64_t expired_ = 0;
  bool stopped_ = false;
  std::thread expirer_;
};

}  // namespace elasticctr::serve
