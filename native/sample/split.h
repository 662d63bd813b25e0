// The share of a log that a reader keeps. The hash of each line alone decides, so the same line falls on the same side
// in any file, order or number of threads. [0, 0.9) and [0.9, 1) with one seed split a log into two disjoint parts.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "util/hash.h"
#include "util/status.h"

namespace elasticctr {

class Split {
 public:
  // Keeps lines with lo <= XXH64(line, seed) / 2^64 < hi.
  Split(double lo, double hi, uint64_t seed) : seed_(seed) {
    if (!(lo >= 0 && lo <= hi && hi <= 1)) {
      throw Error(Code::kConfig, "a split is a range [lo, hi) within 0 and 1, not [" + std::to_string(lo) + ", " +
                                     std::to_string(hi) + ")");
    }
    lo_ = Threshold(lo);
    hi_ = Threshold(hi);
  }

  bool keeps_all() const { return lo_ == 0 && hi_ == kEnd; }

  // `line` comes without its line end.
  bool Keeps(std::string_view line) const {
    const uint64_t hash = Xxh64(line.data(), line.size(), seed_);
    return hash >= lo_ && hash < hi_;
  }

 private:
  __extension__ typedef unsigned __int128 Wide;
  static constexpr Wide kEnd = Wide{1} << 64;

  static Wide Threshold(double fraction) { return static_cast<Wide>(std::ceil(std::ldexp(fraction, 64))); }

  Wide lo_, hi_;
  uint64_t seed_;
};

}  // namespace elasticctr
