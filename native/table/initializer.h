// Initial weights: a pure function of (seed, table, segment, feasign, position), by integer hashing and exact
// float arithmetic, so a row starts the same on every machine and whenever it is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "table/settings.h"

namespace elasticctr {

class Initializer {
 public:
  Initializer(const InitializerSettings& settings, const std::string& table, const std::string& segment, uint64_t seed);

  void Fill(uint64_t feasign, float* weights, size_t dim) const;

 private:
  InitializerSettings settings_;
  uint64_t salt_;
};

}  // namespace elasticctr
