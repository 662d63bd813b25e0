#include "util/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "util/status.h"

namespace elasticctr {
namespace {

[[noreturn]] void Fail(const std::string& path, const char* doing, int error) {
  const std::string said = std::strerror(error);
  if (error == ENOENT) throw Error(Code::kNotFound, path + ": no such file or directory");
  if (error == ENOSPC || error == EDQUOT) {
    throw Error(Code::kInternal, path + ": the disk is full (" + said + "); free some space and save again");
  }
  throw Error(Code::kInternal, path + ": cannot be " + doing + ": " + said);
}

}  // namespace

File File::OpenForReading(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) Fail(path, "opened", errno);
  return File(path, fd);
}

File File::Create(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) Fail(path, "created", errno);
  return File(path, fd);
}

File::~File() {
  if (fd_ >= 0) close(fd_);
}

uint64_t File::Size() const {
  struct stat status;
  if (fstat(fd_, &status) != 0) Fail(path_, "measured", errno);
  if (!S_ISREG(status.st_mode)) throw Error(Code::kCorruption, path_ + ": not a regular file");
  return static_cast<uint64_t>(status.st_size);
}

void File::Read(void* data, size_t size, uint64_t offset) const {
  auto* to = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t n = pread(fd_, to, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) Fail(path_, "read", errno);
    if (n == 0) throw Error(Code::kCorruption, path_ + ": is truncated: it ends at byte " + std::to_string(offset));
    to += n;
    offset += static_cast<uint64_t>(n);
    size -= static_cast<size_t>(n);
  }
}

void File::Write(const void* data, size_t size, uint64_t offset) const {
  const auto* from = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = pwrite(fd_, from, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) Fail(path_, "written", errno);
    from += n;
    offset += static_cast<uint64_t>(n);
    size -= static_cast<size_t>(n);
  }
}

void File::Sync() const {
  if (fsync(fd_) != 0) Fail(path_, "synced", errno);
}

void File::StartSync(uint64_t offset, uint64_t size) const {
#ifdef SYNC_FILE_RANGE_WRITE
  sync_file_range(fd_, static_cast<off_t>(offset), static_cast<off_t>(size), SYNC_FILE_RANGE_WRITE);
#else
  (void)offset, (void)size;
#endif
}

AtomicFile::AtomicFile(const std::string& path) : path_(path), file_(File::Create(path + ".tmp")) {}

AtomicFile::~AtomicFile() {
  if (!is_committed_) unlink(file_.path().c_str());
}

void AtomicFile::Commit() {
  file_.Sync();
  CommitUnsynced();
  const size_t slash = path_.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
  File::OpenForReading(folder).Sync();
}

void AtomicFile::CommitUnsynced() {
  if (std::rename(file_.path().c_str(), path_.c_str()) != 0) Fail(path_, "renamed into place", errno);
  is_committed_ = true;
}

}  // namespace elasticctr
