// The files of a request log: the one being written, when it is complete, which old ones are removed. Used by one
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

  // Makes the directory and a file in it to see that it can; completes what killed servers left. Throws ConfigError.
  void Prepare();
  // Whole lines; all of them are on their way to the disk, or none is and it throws InternalError.
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
