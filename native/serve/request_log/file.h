// The files of a request log: writes the current one, completes it when it is due, and removes old ones. Used by one
// thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace elasticctr::serve {

class RequestLogFile {
 public:
  RequestLogFile(std::string directory, uint64_t max_bytes, uint64_t file_bytes, uint32_t file_s);
  ~RequestLogFile();
  RequestLogFile(const RequestLogFile&) = delete;
  RequestLogFile& operator=(const RequestLogFile&) = delete;

  // Creates the directory and a file in it to check that it is writable; completes files of killed servers. Throws
  // ConfigError.
  void Prepare();
  // Writes whole lines. All of them are passed to the system, or none is and it throws InternalError.
  void Write(std::string_view lines);
  // Completes the file if it is large or old enough, or `always`.
  void Rotate(bool always);
  uint64_t file_bytes() const { return file_bytes_; }
  uint64_t removed() const { return removed_; }

 private:
  void Open(uint64_t bytes);
  void MakeRoom(uint64_t bytes);

  const std::string directory_;
  const uint64_t max_bytes_, file_bytes_;
  const std::chrono::seconds age_;
  int fd_ = -1;
  std::string path_;  // without .open
  uint64_t size_ = 0;
  std::chrono::steady_clock::time_point opened_;
  uint64_t removed_ = 0;
};

}  // namespace elasticctr::serve
