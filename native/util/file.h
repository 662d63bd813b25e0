// Files read and written at given offsets. Every failure is an Error with the file's name and the system's message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace elasticctr {

class File {
 public:
  // Throws Error(kNotFound) if there is no such file, Error(kInternal) if it cannot be opened.
  static File OpenForReading(const std::string& path);
  // Creates an empty file, replacing an existing one.
  static File Create(const std::string& path);

  File(File&& other) noexcept : path_(std::move(other.path_)), fd_(other.fd_) { other.fd_ = -1; }
  File& operator=(File&&) = delete;
  ~File();

  const std::string& path() const { return path_; }
  uint64_t Size() const;

  // Reads exactly `size` bytes; throws Error(kCorruption) if the file ends earlier.
  void Read(void* data, size_t size, uint64_t offset) const;
  void Write(const void* data, size_t size, uint64_t offset) const;
  // Returns when the data is on disk, not only in the page cache.
  void Sync() const;
  // Asks the system to start writing these bytes to disk; does not wait.
  void StartSync(uint64_t offset, uint64_t size) const;

 private:
  File(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_;
};

// A file that is written as `path`.tmp and appears at `path` complete or not at all. If Commit is not called, the
// temporary file is removed.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  const File& file() const { return file_; }
  void Commit();
  // Commit without Sync, for a file that its owner syncs later.
  void CommitUnsynced();

 private:
  std::string path_;
  File file_;
  bool is_committed_ = false;
};

}  // namespace elasticctr
