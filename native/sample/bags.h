// Rearranges samples: splits and joins `values` and `offsets` of S slots and n samples (data/batch.py has the layout).
// Contradictory offsets throw kCorruption.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace elasticctr {

struct BagsView {
  std::span<const uint64_t> values;
  std::span<const int32_t> offsets;  // [S * n + 1]
  size_t n;
};

struct Bags {
  std::unique_ptr<uint64_t[]> values;
  std::unique_ptr<int32_t[]> offsets;
  size_t value_count = 0, offset_count = 0;
};

// The samples at `rows`, in that order. A row outside [0, n) throws kFailedPrecondition.
Bags TakeBags(const BagsView& bags, std::span<const int64_t> rows);

// The samples [start, stop). The range is cut to [0, n).
Bags SliceBags(const BagsView& bags, size_t start, size_t stop);

// All samples of all parts, in order. Parts may be empty.
Bags ConcatBags(const std::vector<BagsView>& parts);

}  // namespace elasticctr
