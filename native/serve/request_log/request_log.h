// The request log: a sample of what was predicted, as JSON lines on disk, from which training samples are made.
//
//   RequestLog log(options);
//   if (log.Takes(id)) log.Add(std::move(request));   // any thread; copies nothing, never waits for the disk
//
// A separate thread writes. Its queue is bounded: beyond that, requests are dropped and counted. Files are
// `requests-<start>-<pid>.jsonl.open` while being written and lose `.open` when complete. A killed server leaves whole
// lines (and perhaps a partial one, without a line end); the next RequestLog in the directory completes its file.
// Complete files are removed, oldest first, before all of them together exceed `max_bytes`.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "serve/request_log/line.h"

namespace elasticctr::serve {

struct RequestLogOptions {
  std::string directory;
  double sample = 1;                  // the share of requests that is logged, by a hash of their id
  uint64_t max_bytes = 10ull << 30;   // of all files in the directory
  uint64_t file_bytes = 64ull << 20;  // a file is complete beyond this size; at most a quarter of max_bytes
  uint32_t file_s = 60;               // or this age
  size_t queue_bytes = 64u << 20;     // of requests that wait to be written
  size_t body_bytes = 256u << 10;     // a longer request is logged without its text
};

class RequestLogFile;

class RequestLog {
 public:
  // Creates the directory and completes files of killed servers. Throws ConfigError if it is not writable.
  explicit RequestLog(RequestLogOptions options);
  ~RequestLog();
  RequestLog(const RequestLog&) = delete;
  RequestLog& operator=(const RequestLog&) = delete;

  const RequestLogOptions& options() const { return options_; }

  // Whether a request with this id is in the sample. All servers agree: XXH64(id, 0) / 2^64 < sample.
  bool Takes(std::string_view id) const;
  // False: it was dropped and counted.
  bool Add(LoggedRequest request);
  // The names of a version's slots, kept once for all its requests. `make` is called if they are unknown.
  template <typename Make>
  std::shared_ptr<const LoggedSlots> SlotNames(const std::string& model, uint64_t version, Make&& make);

  // Writes queued requests and completes the file. Later Adds are dropped.
  void Stop();

  struct Stats {
    std::atomic<uint64_t> written{0};  // lines
    std::atomic<uint64_t> bytes{0};
    std::atomic<uint64_t> dropped{0};  // the queue was full
    std::atomic<uint64_t> failed{0};   // writing to disk failed
    std::atomic<uint64_t> removed{0};  // files, to stay within max_bytes
  };
  const Stats& stats() const { return stats_; }
  // As Prometheus text.
  std::string Metrics() const;

 private:
  struct Names {
    std::string model;
    uint64_t version;
    std::shared_ptr<const LoggedSlots> slots;
  };

  void Run();
  void WriteAll(std::vector<LoggedRequest>* requests, std::string* lines);

  const RequestLogOptions options_;
  const double threshold_;
  Stats stats_;
  std::unique_ptr<RequestLogFile> file_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<LoggedRequest> waiting_;
  size_t waiting_bytes_ = 0;
  bool is_stopping_ = false;
  std::mutex names_mutex_;
  std::vector<Names> names_;
  std::thread thread_;
};

template <typename Make>
std::shared_ptr<const LoggedSlots> RequestLog::SlotNames(const std::string& model, uint64_t version, Make&& make) {
  constexpr size_t kKept = 32;
  const std::lock_guard lock(names_mutex_);
  for (const Names& known : names_) {
    if (known.version == version && known.model == model) return known.slots;
  }
  if (names_.size() >= kKept) names_.erase(names_.begin());
  names_.push_back({model, version, std::make_shared<const LoggedSlots>(make())});
  return names_.back().slots;
}

}  // namespace elasticctr::serve
