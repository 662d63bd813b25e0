// Requests that are not predictions, on their way to Python and back. Bounded in number and in time: requests that do
// not fit are refused, and those not answered in time get a 504 (the work itself may continue).
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
  size_t requests = 64;   // waiting or being worked on
  double timeout_s = 60;  // for an answer
};

class ControlQueue {
 public:
  // Where an answer goes; may be called from any thread.
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
  // The next request, for Python; false: none came within timeout_s, or the queue was stopped.
  bool Next(double timeout_s, ControlRequest* request);
  // `headers` are further header lines, each with its CRLF. An id that is not waiting any more is ignored.
  void Answer(uint64_t id, int status, std::string_view type, std::string_view body, std::string_view headers);
  // Answers all that wait with 503; nothing is taken any more.
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
  std::map<uint64_t, Waiting> waiting_;  // by id, which is by deadline
  uint64_t next_id_ = 1;
  uint64_t expired_ = 0;
  bool stopped_ = false;
  std::thread expirer_;
};

}  // namespace elasticctr::serve
