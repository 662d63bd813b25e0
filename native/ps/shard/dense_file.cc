#include "ps/shard/dense_file.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "util/crc32c.h"
#include "util/status.h"

namespace elasticctr::ps {
namespace {

constexpr char kMagic[8] = {'E', 'C', 'T', 'R', 'D', 'N', 'S', '\0'};
constexpr uint32_t kVersion = 1;

}  // namespace

uint32_t WriteDense(const File& file, const DensePart& part, DenseOptimizerKind kind, uint64_t dense_floats,
                    uint64_t first) {
  DenseHeader header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kVersion;
  header.optimizer = static_cast<uint32_t>(kind);
  header.dense_floats = dense_floats;
  header.first = first;
  header.count = part.size();
  header.steps = part.steps();
  header.state_arrays = static_cast<uint32_t>(part.state_arrays());
  header.has_values = part.has_values() ? 1 : 0;
  uint64_t offset = sizeof header;
  const auto write = [&](std::span<const float> floats) {
    header.payload_crc = Crc32c(header.payload_crc, floats.data(), floats.size_bytes());
    file.Write(floats.data(), floats.size_bytes(), offset);
    offset += floats.size_bytes();
  };
  write(part.values());
  for (size_t i = 0; i < part.state_arrays(); ++i) write(part.state(i));
  header.crc = Crc32c(0, &header, offsetof(DenseHeader, crc));
  file.Write(&header, sizeof header, 0);
  return header.payload_crc;
}

DenseFile::DenseFile(const std::string& path, DenseOptimizerKind kind, uint64_t dense_floats)
    : file_(File::OpenForReading(path)) {
  const uint64_t size = file_.Size();
  if (size < sizeof header_) Corrupt("too short for a part of the dense vector");
  file_.Read(&header_, sizeof header_, 0);
  if (std::memcmp(header_.magic, kMagic, sizeof kMagic) != 0) Corrupt("not a part of a dense vector");
  if (Crc32c(0, &header_, offsetof(DenseHeader, crc)) != header_.crc) Corrupt("the header fails its checksum");
  if (header_.version != kVersion) {
    throw Error(Code::kFailedPrecondition, path + ": dense format " + std::to_string(header_.version) +
                                               "; this version of ElasticCTR reads format 1");
  }
  const uint64_t arrays = uint64_t{header_.state_arrays} + 1;
  // The file does not decide the number of state arrays: the optimizer does.
  if (header_.optimizer == static_cast<uint32_t>(kind) && header_.state_arrays != StateArraysOf(kind)) {
    Corrupt("another number of state arrays than its optimizer has");
  }
  if (header_.state_arrays > 2 || header_.count > size / sizeof(float) ||
      size != sizeof header_ + arrays * header_.count * sizeof(float)) {
    Corrupt("its length does not fit its header");
  }
  if (header_.first > header_.dense_floats || header_.count > header_.dense_floats - header_.first) {
    Corrupt("floats beyond the end of the vector");
  }
  if (header_.dense_floats != dense_floats || header_.optimizer != static_cast<uint32_t>(kind)) {
    throw Error(Code::kFailedPrecondition, path + ": of a model with " + std::to_string(header_.dense_floats) +
                                               " dense parameters, this job's has " + std::to_string(dense_floats) +
                                               ", or of another dense optimizer; use the job it was saved by");
  }
}

void DenseFile::Read(uint64_t first, uint64_t last, uint64_t origin, float* values,
                     std::vector<std::vector<float>>* state) const {
  std::vector<float> array(header_.count);
  const uint64_t begin = std::max(first, header_.first), end = std::min(last, header_.first + header_.count);
  uint32_t crc = 0;
  for (size_t i = 0; i <= header_.state_arrays; ++i) {
    const uint64_t bytes = header_.count * sizeof(float);
    file_.Read(array.data(), bytes, sizeof header_ + i * bytes);
    crc = Crc32c(crc, array.data(), bytes);
    if (begin >= end) continue;
    float* out = (i == 0 ? values : (*state)[i - 1].data()) + (begin - origin);
    std::copy_n(array.data() + (begin - header_.first), end - begin, out);
  }
  if (crc != header_.payload_crc) Corrupt("its floats fail their checksum");
}

void DenseFile::Corrupt(const char* what) const {
  throw Error(Code::kCorruption, file_.path() + ": damaged: " + what + "; take another checkpoint");
}

}  // namespace elasticctr::ps
