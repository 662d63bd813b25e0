#include "serve/pooling.h"

#include <algorithm>

#include "util/target.h"

namespace elasticctr::serve {
namespace {

ELASTICCTR_INLINE void PoolBag(const PooledSlot& slot, const float* row, uint32_t count, float* out) {
  for (const Piece& piece : slot.pieces) {
    const float* from = row + piece.row;
    float* to = out + piece.column;
    const uint32_t dim = piece.dim;
    if (count == 1) {
      for (uint32_t j = 0; j < dim; ++j) to[j] = 0.0f + from[j];
      continue;
    }
    for (uint32_t j = 0; j < dim; ++j) to[j] = 0.0f;
    for (uint32_t k = 0; k < count; ++k, from += slot.stride) {
      for (uint32_t j = 0; j < dim; ++j) to[j] += from[j];
    }
    if (slot.is_mean && count > 1) {
      const float scale = 1.0f / static_cast<float>(count);
      for (uint32_t j = 0; j < dim; ++j) to[j] *= scale;
    }
  }
}

ELASTICCTR_INLINE void CopyPooled(const PooledSlot& slot, const float* from, float* to) {
  for (const Piece& piece : slot.pieces) {
    for (uint32_t j = 0; j < piece.dim; ++j) to[piece.column + j] = from[piece.column + j];
  }
}

ELASTICCTR_CLONES void PoolAll(const Samples& samples, const PooledSlot* slots, size_t slot_count,
                               const float* const* rows, uint32_t width, uint32_t* memo, float* pooled) {
  const size_t n = samples.size();
  for (size_t i = 0; i < n; ++i, pooled += width) {
    const Samples::Bag* bags = samples.bags(i);
    for (size_t s = 0; s < slot_count; ++s) {
      const PooledSlot& slot = slots[s];
      const Samples::Bag bag = bags[slot.slot];
      // Per slot, the bag of several values pooled last, and for which sample.
      uint32_t* last = memo + 2 * s;
      if (bag.count > 1 && last[0] == bag.first) {
        CopyPooled(slot, pooled - (i - last[1]) * width, pooled);
        continue;
      }
      PoolBag(slot, rows[slot.slot] + size_t{bag.first} * slot.stride, bag.count, pooled);
      if (bag.count > 1) {
        last[0] = bag.first;
        last[1] = static_cast<uint32_t>(i);
      }
    }
  }
}

}  // namespace

void PoolSamples(const Samples& samples, const std::vector<PooledSlot>& slots, const float* const* rows, uint32_t width,
                 std::vector<uint32_t>* memo, float* pooled) {
  memo->assign(2 * slots.size(), ~0u);
  PoolAll(samples, slots.data(), slots.size(), rows, width, memo->data(), pooled);
}

void FillSequence(const Samples& samples, uint32_t slot, const SparsePlan& plan, uint32_t stride, const float* rows,
                  float* values, int64_t* lengths) {
  for (size_t i = 0; i < samples.size(); ++i) {
    const Samples::Bag bag = samples.bags(i)[slot];
    const uint32_t length = std::min(bag.count, plan.max_values);
    const float* from = rows + size_t{bag.first + bag.count - length} * stride + plan.row;
    for (uint32_t k = 0; k < length; ++k, from += stride, values += plan.dim) std::copy_n(from, plan.dim, values);
    values = std::fill_n(values, size_t{plan.max_values - length} * plan.dim, 0.0f);
    lengths[i] = length;
  }
}

}  // namespace elasticctr::serve
