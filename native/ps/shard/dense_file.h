// `dense.<shard>.bin`: a part of the dense vector with its optimizer's state (docs/formats/checkpoint.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ps/shard/dense.h"
#include "util/file.h"

namespace elasticctr::ps {

struct DenseHeader {
  char magic[8];
  uint32_t version;
  uint32_t optimizer;     // DenseOptimizerKind
  uint64_t dense_floats;  // of the whole job
  uint64_t first;
  uint64_t count;
  uint64_t steps;
  uint32_t state_arrays;
  uint32_t has_values;
  uint32_t payload_crc;
  uint32_t crc;  // of the 60 bytes before it
};
static_assert(sizeof(DenseHeader) == 64);

// Returns the payload's CRC.
uint32_t WriteDense(const File& file, const DensePart& part, DenseOptimizerKind kind, uint64_t dense_floats,
                    uint64_t first);

// One open file whose header was checked.
class DenseFile {
 public:
  // Throws NotFound, Corruption, FailedPrecondition (another optimizer, another number of floats).
  DenseFile(const std::string& path, DenseOptimizerKind kind, uint64_t dense_floats);
  const DenseHeader& header() const { return header_; }
  // Reads the part of floats [first, last) of the job that this file holds into arrays that begin at float `origin`:
  // values and each state. Throws Corruption if the payload fails its checksum.
  void Read(uint64_t first, uint64_t last, uint64_t origin, float* values,
            std::vector<std::vector<float>>* state) const;

 private:
  [[noreturn]] void Corrupt(const char* what) const;

  File file_;
  DenseHeader header_{};
};

}  // namespace elasticctr::ps
