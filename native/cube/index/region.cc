#include "cube/index/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "util/status.h"

namespace elasticctr::cube {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

Region Region::Allocate(size_t bytes) {
  Region region;
  const size_t slack = bytes >= kHugePage ? kHugePage : 0;
  void* p = mmap(nullptr, bytes + slack + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    throw Error(Code::kInternal, "no memory for a table of " + std::to_string(bytes) +
                                     " bytes; serve it mapped from its file, or from a larger machine");
  }
  region.mapping_ = p;
  region.mapped_bytes_ = bytes + slack + 1;
  const auto address = reinterpret_cast<uintptr_t>(p);
  region.data_ = reinterpret_cast<uint8_t*>(slack == 0 ? address : (address + kHugePage - 1) / kHugePage * kHugePage);
  region.size_ = bytes;
#ifdef MADV_HUGEPAGE
  if (slack != 0) madvise(region.data_, bytes, MADV_HUGEPAGE);
#endif
  return region;
}

Region Region::Map(const std::string& path, size_t bytes) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == ENOENT) throw Error(Code::kNotFound, path + ": no such file");
    throw Error(Code::kInternal, path + ": cannot be opened: " + std::strerror(errno));
  }
  void* p = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  const int error = errno;
  if (p == MAP_FAILED) {
    close(fd);
    throw Error(Code::kInternal, path + ": cannot be mapped: " + std::strerror(error));
  }
  Region region;
  region.mapping_ = p;
  region.mapped_bytes_ = bytes;
  region.data_ = static_cast<uint8_t*>(p);
  region.size_ = bytes;
  region.guard_ = std::make_unique<Guard>(p, bytes, fd);
  return region;
}

void Region::Shrink(size_t bytes) {
  constexpr size_t kPage = 4096;
  const size_t lead = static_cast<size_t>(data_ - static_cast<uint8_t*>(mapping_));
  const size_t kept = (lead + bytes + kPage - 1) / kPage * kPage;
  size_ = bytes;
  if (kept == 0 || kept >= mapped_bytes_) return;
  munmap(static_cast<uint8_t*>(mapping_) + kept, mapped_bytes_ - kept);
  mapped_bytes_ = kept;
}

Region& Region::operator=(Region&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(guard_, other.guard_);
  return *this;
}

Region::~Region() {
  guard_.reset();
  if (mapping_ != nullptr) munmap(mapping_, mapped_bytes_);
}

}  // namespace elasticctr::cube
