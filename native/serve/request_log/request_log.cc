#include "serve/request_log/request_log.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "serve/request_log/file.h"
#include "util/hash.h"
#include "util/status.h"

namespace elasticctr::serve {
namespace {

constexpr auto kWriteEvery = std::chrono::milliseconds(50);
constexpr auto kPauseAfterFailure = std::chrono::seconds(1);
constexpr size_t kWriteBytes = 1u << 20;
constexpr double kTwo64 = 18446744073709551616.0;

void Check(const RequestLogOptions& options) {
  if (!(options.sample >= 0 && options.sample <= 1)) {
    throw Error(Code::kConfig, "the request log's sample must be from 0 to 1, not " + std::to_string(options.sample));
  }
  if (options.directory.empty()) throw Error(Code::kConfig, "the request log needs a directory");
  if (options.max_bytes < 4096) throw Error(Code::kConfig, "the request log needs at least 4096 bytes of disk");
}

}  // namespace

RequestLog::RequestLog(RequestLogOptions options)
    : options_((Check(options), std::move(options))), threshold_(options_.sample * kTwo64) {
  file_ =
      std::make_unique<RequestLogFile>(options_.directory, options_.max_bytes, options_.file_bytes, options_.file_s);
  file_->Prepare();
  stats_.removed = file_->removed();
  thread_ = std::thread([this] { Run(); });
}

RequestLog::~RequestLog() { Stop(); }

bool RequestLog::Takes(std::string_view id) const {
  return options_.sample >= 1 || static_cast<double>(Xxh64(id.data(), id.size(), 0)) < threshold_;
}

bool RequestLog::Add(LoggedRequest request) {
  const size_t bytes = request.bytes();
  bool is_half = false;
  {
    const std::lock_guard lock(mutex_);
    if (is_stopping_ || waiting_bytes_ + bytes > options_.queue_bytes) {
      stats_.dropped.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
    const bool was_half = waiting_bytes_ * 2 > options_.queue_bytes;
    waiting_bytes_ += bytes;
    is_half = !was_half && waiting_bytes_ * 2 > options_.queue_bytes;
    waiting_.push_back(std::move(request));
  }
  // The writer wakes up regularly; a prediction pays for waking it only when the queue fills.
  if (is_half) wake_.notify_one();
  return true;
}

void RequestLog::Run() {
  std::vector<LoggedRequest> taken;
  std::string lines;
  while (true) {
    bool is_last;
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, kWriteEvery, [&] { return is_stopping_ || waiting_bytes_ * 2 > options_.queue_bytes; });
      is_last = is_stopping_;
      taken.swap(waiting_);
      waiting_bytes_ = 0;
    }
    WriteAll(&taken, &lines);
    taken.clear();
    file_->Rotate(is_last);
    if (is_last) return;
  }
}

void RequestLog::WriteAll(std::vector<LoggedRequest>* requests, std::string* lines) {
  const size_t at_once = static_cast<size_t>(std::min<uint64_t>(kWriteBytes, file_->file_bytes() / 8));
  uint64_t count = 0;
  lines->clear();
  for (size_t i = 0; i < requests->size(); ++i) {
    AppendLine((*requests)[i], lines);
    ++count;
    if (lines->size() < at_once && i + 1 < requests->size()) continue;
    try {
      file_->Write(*lines);
      stats_.written.fetch_add(count, std::memory_order_relaxed);
      stats_.bytes.fetch_add(lines->size(), std::memory_order_relaxed);
      file_->Rotate(false);
    } catch (const Error&) {
      // A full disk: these are lost and counted. Waiting avoids a tight loop, and later requests may still find room.
      stats_.failed.fetch_add(count, std::memory_order_relaxed);
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, kPauseAfterFailure, [&] { return is_stopping_; });
    }
    stats_.removed.store(file_->removed(), std::memory_order_relaxed);
    count = 0;
    lines->clear();
  }
}

void RequestLog::Stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

std::string RequestLog::Metrics() const {
  const auto counter = [](const char* name, const char* help, uint64_t value) {
    const std::string full = std::string("serve_request_log_") + name;
    return "# HELP " + full + " " + help + "\n# TYPE " + full + " counter\n" + full + " " + std::to_string(value) +
           "\n";
  };
  return counter("lines_total", "Requests written to the request log.", stats_.written) +
         counter("bytes_total", "Bytes written to the request log.", stats_.bytes) +
         counter("dropped_total", "Requests not logged because too many waited.", stats_.dropped) +
         counter("failed_total", "Requests not logged because the disk did not take them.", stats_.failed) +
         counter("removed_files_total", "Old request logs removed to stay within the bound.", stats_.removed);
}

}  // namespace elasticctr::serve
