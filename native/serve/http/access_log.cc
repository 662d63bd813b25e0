#include "serve/http/access_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "serve/http/status.h"
#include "util/json_text.h"
#include "util/signals.h"
#include "util/status_table.h"

namespace elasticctr::serve {
namespace {

constexpr size_t kMaxPendingBytes = 8u << 20;
constexpr size_t kWakeBytes = 256 * 1024;
constexpr auto kFlushEvery = std::chrono::milliseconds(200);
constexpr size_t kMaxTextBytes = 256;

// "time": the current time, to the millisecond, in UTC.
void AppendTime(std::string* line) {
  timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  tm parts;
  ::gmtime_r(&now.tv_sec, &parts);
  char text[48];
  size_t n = ::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  n += static_cast<size_t>(std::snprintf(text + n, sizeof text - n, ".%03ldZ", now.tv_nsec / 1'000'000));
  line->append("{\"time\":\"").append(text, n).append("\"");
}

void AppendText(std::string* line, std::string_view key, std::string_view value) {
  line->append(",\"").append(key).append("\":");
  AppendJsonString(line, value.substr(0, kMaxTextBytes));
}

void AppendCount(std::string* line, std::string_view key, uint64_t value) {
  line->append(",\"").append(key).append("\":");
  AppendNumber(line, value);
}

}  // namespace

AccessLog::AccessLog(const AccessLogOptions& options) : options_(options), is_stderr_(options.path == "-") {
  if (!is_stderr_) {
    Reopen();
    if (!fd_) throw Error(Code::kConfig, "access log " + options_.path + ": " + std::strerror(errno));
  }
  const BlockedSignals blocked;
  writer_ = std::thread([this] { Run(); });
}

AccessLog::~AccessLog() { Stop(); }

void AccessLog::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (writer_.joinable()) writer_.join();
}

void AccessLog::Add(const Finished& finished) {
  const Request& request = *finished.request;
  const Parsed* parsed = finished.parsed;
  const Reply* reply = finished.reply;
  std::string line;
  line.reserve(384);
  AppendTime(&line);
  AppendText(&line, "id", parsed != nullptr && !parsed->id.empty() ? parsed->id : request.id);
  AppendText(&line, "peer", request.peer);
  AppendText(&line, "protocol", request.codec->name());
  if (reply != nullptr) {
    AppendText(&line, "model", *reply->model);
    AppendCount(&line, "version", reply->version);
    AppendText(&line, "variant", *reply->variant);
    AppendCount(&line, "samples", reply->count);
  } else {
    AppendText(&line, "model", parsed != nullptr && request.model.empty() ? parsed->model : request.model);
  }
  AppendText(&line, "code", finished.error == nullptr ? "OK" : NameOf(finished.error->code()));
  AppendCount(&line, "status", finished.error == nullptr ? 200 : static_cast<uint64_t>(HttpStatusOf(*finished.error)));
  AppendCount(&line, "queue_us", finished.queue_ns / 1000);
  AppendCount(&line, "total_us", finished.total_ns / 1000);
  line.append("}\n");
  Append(line);
}

void AccessLog::Add(const std::string& peer, const std::string& method, const std::string& path, int status,
                    uint64_t total_ns) {
  std::string line;
  AppendTime(&line);
  AppendText(&line, "peer", peer);
  AppendText(&line, "protocol", "http");
  AppendText(&line, "method", method);
  AppendText(&line, "path", path);
  AppendCount(&line, "status", static_cast<uint64_t>(status));
  AppendCount(&line, "total_us", total_ns / 1000);
  line.append("}\n");
  Append(line);
}

std::string AccessLog::Metrics() const {
  std::string text;
  auto counter = [&](const char* name, const char* help, const std::atomic<uint64_t>& value) {
    text.append("# HELP ").append(name).append(" ").append(help);
    text.append("\n# TYPE ").append(name).append(" counter\n").append(name).append(" ");
    text.append(std::to_string(value.load(std::memory_order_relaxed))).append("\n");
  };
  counter("serve_access_log_lines_total", "Lines of the access log.", lines_);
  counter("serve_access_log_dropped_total", "Lines that were not written: the disk is full or slow.", dropped_);
  return text;
}

void AccessLog::Append(const std::string& line) {
  bool wakes = false;
  {
    std::lock_guard lock(mutex_);
    if (pending_.size() + line.size() > kMaxPendingBytes) {
      dropped_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    wakes = pending_.size() < kWakeBytes && pending_.size() + line.size() >= kWakeBytes;
    pending_.append(line);
  }
  lines_.fetch_add(1, std::memory_order_relaxed);
  if (wakes) wake_.notify_one();
}

void AccessLog::Run() {
  std::string taken;
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait_for(lock, kFlushEvery, [this] { return stopping_ || pending_.size() >= kWakeBytes; });
    bool is_last = stopping_;
    taken.clear();
    taken.swap(pending_);
    lock.unlock();
    if (!taken.empty()) Write(taken);
    lock.lock();
    if (is_last && pending_.empty()) return;
  }
}

void AccessLog::Write(const std::string& lines) {
  if (!is_stderr_) {
    struct stat open_one, named_one;
    bool is_same = fd_ && ::fstat(fd_.get(), &open_one) == 0 && ::stat(options_.path.c_str(), &named_one) == 0 &&
                   open_one.st_ino == named_one.st_ino && open_one.st_dev == named_one.st_dev;
    if (!is_same) Reopen();
    if (bytes_ + lines.size() > options_.max_bytes && bytes_ != 0) Rotate();
  }
  const int fd = is_stderr_ ? STDERR_FILENO : fd_.get();
  for (size_t at = 0; at < lines.size();) {
    ssize_t n = fd < 0 ? -1 : ::write(fd, lines.data() + at, lines.size() - at);
    if (n < 0 && fd >= 0 && errno == EINTR) continue;
    if (n <= 0) {
      // A full disk or a closed pipe: these lines are lost, later ones are tried again.
      auto lost = static_cast<uint64_t>(std::count(lines.begin() + static_cast<ptrdiff_t>(at), lines.end(), '\n'));
      dropped_.fetch_add(lost, std::memory_order_relaxed);
      return;
    }
    at += static_cast<size_t>(n);
    bytes_ += static_cast<uint64_t>(n);
  }
}

void AccessLog::Reopen() {
  fd_.Close();
  fd_ = net::Fd(::open(options_.path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640));
  struct stat status;
  bytes_ =
      fd_ && ::fstat(fd_.get(), &status) == 0 && S_ISREG(status.st_mode) ? static_cast<uint64_t>(status.st_size) : 0;
}

void AccessLog::Rotate() {
  for (uint32_t i = options_.keep; i > 0; --i) {
    std::string from = i == 1 ? options_.path : options_.path + "." + std::to_string(i - 1);
    ::rename(from.c_str(), (options_.path + "." + std::to_string(i)).c_str());
  }
  if (options_.keep == 0) ::unlink(options_.path.c_str());
  Reopen();
}

}  // namespace elasticctr::serve
