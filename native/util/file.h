// Files read and written at given offsets. Every failure is an Error that names the file and what the system said.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace elasticctr {

class File {
 public:
  // Throws Error(kNotFound) if there is no such file, Error(kInternal) if it cannot be opened.
  static File OpenForReading(const std::string& path);
  // Makes an empty file, replacing one that is there.
  static File Create(const std::string& path);

  File(File&& other) noexcept : path_(std::move(other.path_)), fd_(other.fd_) { other.fd_ = -1; }
  File& operator=(File&&) = delete;
  ~File();

  const std::string& path() const { return path_; }
  uint64_t Size() const;

  // Exactly `size` bytes; throws Error(kCorruption) if the file ends before.
  void Read(void* data, size_t size, uint64_t offset) const;
  void Write(const void* data, size_t size, uint64_t offset) const;
  // On disk for good, not only with the system.
  void Sync() const;
  // Asks the system to begin with that for some bytes, without waiting.
  void StartSync(uint64_t offset, uint64_t size) const;

 private:
  File(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_;
};

// A file that is written beside its place as `path`.tmp and appears there complete or not at all. If Commit is
// not reached, the temporary file is removed.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  const File& file() const { return file_; }
  void Commit();
  // The same for a file that its owner syncs later.
  void CommitUnsynced();

 private:
  std::string path_;
  File file_;
  bool is_committed_ = false;
};

}  // namespace elasticctr
