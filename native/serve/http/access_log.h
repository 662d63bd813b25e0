// Writes one JSON line per request to a file or to stderr. Workers only append to memory; a separate thread writes. If
// the disk is too slow, lines are dropped and counted; requests never wait.
//
// A file that grew over max_bytes is renamed to FILE.1 (and .1 to .2, up to `keep`); one that was renamed or
// removed by another program is created again, so that logrotate needs no signal.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "net/socket.h"
#include "serve/engine/engine.h"

namespace elasticctr::serve {

struct AccessLogOptions {
  std::string path;  // "-": stderr
  uint64_t max_bytes = 100ull << 20;
  uint32_t keep = 5;
};

class AccessLog {
 public:
  // Throws ConfigError if the file cannot be opened.
  explicit AccessLog(const AccessLogOptions& options);
  ~AccessLog();

  // A prediction. Any thread.
  void Add(const Finished& finished);
  // Any other HTTP request. Any thread.
  void Add(const std::string& peer, const std::string& method, const std::string& path, int status, uint64_t total_ns);

  // Writes pending lines; later ones are dropped.
  void Stop();
  // As Prometheus text.
  std::string Metrics() const;

 private:
  void Append(const std::string& line);
  void Run();
  void Write(const std::string& lines);
  void Reopen();
  void Rotate();

  const AccessLogOptions options_;
  const bool is_stderr_;
  net::Fd fd_;
  uint64_t bytes_ = 0;  // of the file
  std::atomic<uint64_t> lines_{0}, dropped_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::string pending_;
  bool stopping_ = false;
  std::thread writer_;
};

}  // namespace elasticctr::serve
