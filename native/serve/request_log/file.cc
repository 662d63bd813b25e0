#include "serve/request_log/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <vector>

#include "util/status.h"

namespace elasticctr::serve {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "requests-";
constexpr std::string_view kComplete = ".jsonl";
constexpr std::string_view kOpen = ".jsonl.open";

// requests-20261115T160203.123456Z-<pid>: the order of names is the order of files.
std::string NewName() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  tm utc;
  gmtime_r(&now.tv_sec, &utc);
  char date[32], name[96];
  std::strftime(date, sizeof date, "%Y%m%dT%H%M%S", &utc);
  std::snprintf(name, sizeof name, "requests-%s.%06ldZ-%d", date, now.tv_nsec / 1000, static_cast<int>(getpid()));
  return name;
}

bool IsLog(const std::string& name, std::string_view end) { return name.starts_with(kPrefix) && name.ends_with(end); }

struct LogFile {
  std::string path;
  uint64_t bytes;
  bool is_open;
};

// The files of all servers that log here, oldest first.
std::vector<LogFile> List(const std::string& directory) {
  std::vector<LogFile> found;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    const bool is_open = IsLog(name, kOpen);
    if (!is_open && !IsLog(name, kComplete)) continue;
    std::error_code gone;
    const uint64_t bytes = at->file_size(gone);
    if (!gone) found.push_back({at->path().string(), bytes, is_open});
  }
  std::sort(found.begin(), found.end(), [](const LogFile& a, const LogFile& b) { return a.path < b.path; });
  return found;
}

// The end of the last whole line.
uint64_t WholeLines(int fd, uint64_t size) {
  char block[1 << 16];
  while (size > 0) {
    const size_t take = static_cast<size_t>(std::min<uint64_t>(size, sizeof block));
    if (pread(fd, block, take, static_cast<off_t>(size - take)) != static_cast<ssize_t>(take)) return size;
    const void* last = memrchr(block, '\n', take);
    if (last != nullptr) return size - take + static_cast<uint64_t>(static_cast<const char*>(last) - block) + 1;
    size -= take;
  }
  return 0;
}

// A live writer holds a lock on its file.
void CompleteLeft(const LogFile& left) {
  const int fd = open(left.path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
    struct stat status;
    const std::string complete = left.path.substr(0, left.path.size() - 5);
    if (fstat(fd, &status) == 0) {
      const uint64_t size = static_cast<uint64_t>(status.st_size), whole = WholeLines(fd, size);
      const bool is_cut = whole == size || ftruncate(fd, static_cast<off_t>(whole)) == 0;
      if (whole == 0) {
        unlink(left.path.c_str());
      } else if (is_cut) {
        rename(left.path.c_str(), complete.c_str());
      }
    }
  }
  close(fd);
}

}  // namespace

RequestLogFile::RequestLogFile(std::string directory, uint64_t max_bytes, uint64_t file_bytes, uint32_t file_s)
    : directory_(std::move(directory)),
      max_bytes_(max_bytes),
      file_bytes_(std::min(file_bytes, max_bytes / 4)),
      age_(file_s) {}

RequestLogFile::~RequestLogFile() {
  if (fd_ >= 0) Rotate(true);
}

void RequestLogFile::Prepare() {
  std::error_code error;
  fs::create_directories(directory_, error);
  if (error || !fs::is_directory(directory_)) {
    throw Error(Code::kConfig, directory_ + ": cannot be made for the request log: " +
                                   (error ? error.message() : "it is not a directory"));
  }
  for (const LogFile& file : List(directory_)) {
    if (file.is_open) CompleteLeft(file);
  }
  try {
    Open(0);
  } catch (const Error& e) {
    throw Error(Code::kConfig, std::string(e.what()) + "; choose another directory for the request log");
  }
}

void RequestLogFile::Open(uint64_t bytes) {
  MakeRoom(std::max(bytes, file_bytes_));
  for (int attempt = 0; fd_ < 0; ++attempt) {
    path_ = directory_ + "/" + NewName() + std::string(kComplete);
    fd_ = open((path_ + ".open").c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd_ < 0 && (errno != EEXIST || attempt == 100)) {
      throw Error(Code::kInternal, path_ + ".open: cannot be made: " + std::strerror(errno));
    }
  }
  flock(fd_, LOCK_EX | LOCK_NB);
  size_ = 0;
  opened_ = std::chrono::steady_clock::now();
}

void RequestLogFile::MakeRoom(uint64_t bytes) {
  std::vector<LogFile> files = List(directory_);
  uint64_t total = bytes;
  for (const LogFile& file : files) total += file.bytes;
  for (const LogFile& file : files) {
    if (total <= max_bytes_) break;
    if (file.is_open) continue;
    if (unlink(file.path.c_str()) == 0) ++removed_;
    total -= file.bytes;
  }
}

void RequestLogFile::Write(std::string_view lines) {
  if (size_ > 0 && size_ + lines.size() > file_bytes_) Rotate(true);
  if (fd_ < 0) Open(lines.size());
  uint64_t done = 0;
  while (done < lines.size()) {
    const ssize_t n = pwrite(fd_, lines.data() + done, lines.size() - done, static_cast<off_t>(size_ + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const std::string reason = n < 0 ? std::strerror(errno) : "nothing written";
      // The partial lines are removed: the file continues after the last whole line once there is room.
      if (ftruncate(fd_, static_cast<off_t>(size_)) != 0) Rotate(true);
      throw Error(Code::kInternal, path_ + ": cannot be written: " + reason);
    }
    done += static_cast<uint64_t>(n);
  }
  size_ += lines.size();
}

void RequestLogFile::Rotate(bool always) {
  if (fd_ < 0) return;
  const bool is_old = std::chrono::steady_clock::now() - opened_ >= age_;
  if (!always && size_ < file_bytes_ && !(is_old && size_ > 0)) return;
  if (size_ == 0) {
    unlink((path_ + ".open").c_str());
  } else {
    fsync(fd_);
    rename((path_ + ".open").c_str(), path_.c_str());
  }
  close(fd_);
  fd_ = -1;
}

}  // namespace elasticctr::serve
