// Combines the pushes of one step: each feasign's gradients are summed over the trainers that have it, weighted by
// their samples, in the given order, so that the result does not depend on the order of arrival.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ps/wire/frames.h"
#include "table/table.h"

namespace elasticctr::ps {

struct Contribution {
  const PushRequest* push;
  float share;               // of the step's samples
  std::vector<Share> ahead;  // parts of the shard that have these batches already
};

// The rows of table `number` in all contributions as one step's gradients. A single contribution is read in place; the
// object must outlive the result of Gradients.
class TableSum {
 public:
  TableSum(std::span<const Contribution> contributions, uint32_t number, uint32_t dim);
  RowGradients Gradients() const;
  size_t size() const { return feasigns_.size(); }

 private:
  void TakeOne(const Contribution& contribution, const PushTable& table);
  void AddUp(std::span<const Contribution> contributions, uint32_t number);

  const uint32_t dim_;
  std::span<const uint64_t> feasigns_;
  std::vector<uint64_t> feasign_copy_, masks_;
  std::vector<float> shows_, clicks_, sums_;
  const PushTable* single_ = nullptr;  // its gradients are decoded as they are used
  Encoding encoding_ = Encoding::kFp32;
};

}  // namespace elasticctr::ps
