// Derived slots: computed from the slots of a log, for lookups only. The trainer computes those of a whole batch
// (Deriver::Derive), the server those of a request (serve/codec/samples.cc). Both call the two functions of a slot
// below, so a sample gets the same feasigns in both. docs/formats/feature-hash.md defines them.
//
// Slots are numbered: first those of the log, 0 … sparse - 1, then derived ones in the order of their specs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sample/bags.h"
#include "sample/spec.h"

namespace elasticctr {

// A cross: one feasign for every combination of values of its parts.
struct CrossSpec {
  std::vector<uint32_t> parts;  // two or three slots, each with a number below the cross's own
  uint32_t max_values = 64;
  bool keep_last = false;  // of more than max_values combinations keep the last, not the first
};

// A bucket: the feasign of the range that a number falls into.
struct BucketSpec {
  uint32_t dense = 0, index = 0;  // which number: dimension `index` of that dense slot
  std::vector<double> edges;      // ascending, before the slot's transform; bucket k is [edges[k - 1], edges[k])
};

struct DerivedSpec {
  std::string name;
  bool is_cross = true;
  CrossSpec cross;
  BucketSpec bucket;
};

class DerivedSlot {
 public:
  // The number of values a cross has for bags of these sizes.
  uint32_t CountCross(std::span<const std::span<const uint64_t>> parts) const;
  // Writes CountCross(parts) values to `out`. The last part changes fastest.
  void FillCross(std::span<const std::span<const uint64_t>> parts, uint64_t* out) const;
  // The feasign of a dense float, after its transform.
  uint64_t Bucket(float value) const;

  bool is_cross() const { return spec_.is_cross; }
  const std::vector<uint32_t>& parts() const { return spec_.cross.parts; }
  uint32_t dense_column() const { return dense_column_; }
  const std::string& name() const { return spec_.name; }

  // The number of the bucket of missing values.
  static constexpr uint64_t kMissing = ~uint64_t{0};

 private:
  friend class Deriver;
  DerivedSpec spec_;
  uint64_t seed_ = 0;
  uint32_t dense_column_ = 0;
  std::vector<float> edges_;  // after the transform
};

// Immutable; any number of threads may use it.
class Deriver {
 public:
  Deriver() = default;
  // Throws kConfig if the slots do not match the samples.
  Deriver(const ParserSpec& samples, std::vector<DerivedSpec> specs);

  const std::vector<DerivedSlot>& slots() const { return slots_; }
  size_t sparse() const { return sparse_; }

  // The bags of all slots, of the log and derived. `dense` is [n, dense floats]. Contradictory offsets throw
  // kCorruption; a wrong shape throws kFailedPrecondition.
  Bags Derive(const BagsView& bags, std::span<const float> dense) const;

 private:
  size_t sparse_ = 0, dense_dim_ = 0;
  std::vector<DerivedSlot> slots_;
};

}  // namespace elasticctr
