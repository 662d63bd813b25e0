#include "serve/version/pooling.h"

#include <algorithm>
#include <cstring>

#include "util/target.h"

namespace elasticctr::serve {
namespace {

// Widths known at compile time need no loops; 0: any other. A row is added to 0, as the trainer does: -0 becomes 0.
template <uint32_t kDim>
ELASTICCTR_INLINE void TakePiece(const float* __restrict from, float* __restrict to, uint32_t dim) {
  const uint32_t count = kDim != 0 ? kDim : dim;
  for (uint32_t j = 0; j < count; ++j) to[j] = 0.0f + from[j];
}

ELASTICCTR_INLINE void TakeRow(const Piece* pieces, size_t count, const float* row, float* out) {
  for (size_t p = 0; p < count; ++p) {
    const float* from = row + pieces[p].row;
    float* to = out + pieces[p].column;
    switch (pieces[p].dim) {
      case 1: TakePiece<1>(from, to, 1); break;
      case 4: TakePiece<4>(from, to, 4); break;
      case 8: TakePiece<8>(from, to, 8); break;
      case 9: TakePiece<9>(from, to, 9); break;
      case 10: TakePiece<10>(from, to, 10); break;
      case 16: TakePiece<16>(from, to, 16); break;
      case 32: TakePiece<32>(from, to, 32); break;
      default: TakePiece<0>(from, to, pieces[p].dim);
    }
  }
}

ELASTICCTR_INLINE void PoolBag(const PooledSlot& slot, const float* row, uint32_t count, float* out) {
  if (count == 1) [[likely]]
    return TakeRow(slot.pieces.data(), slot.pieces.size(), row, out);
  for (const Piece& piece : slot.pieces) {
    const float* __restrict from = row + piece.row;
    float* __restrict to = out + piece.column;
    const uint32_t dim = piece.dim;
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

// The samples of one request. `memo` has room for one pooled row.
ELASTICCTR_CLONES void PoolRequest(const Samples& samples, size_t request, const PooledSlot* slots, size_t slot_count,
                                   const float* const* rows, uint32_t width, float* memo, float* pooled) {
  const auto [first, count] = samples.request(request);
  const uint32_t* shared_first = samples.first_values(request);
  const uint32_t* shared_count = samples.shared_counts(request);
  pooled += first * width;
  // Shared values are pooled once, and each sample starts from a copy.
  bool is_shared = false;
  for (size_t s = 0; s < slot_count && count > 1; ++s) {
    const uint32_t slot = slots[s].slot;
    if (shared_count[slot] == 0) continue;
    is_shared = true;
    PoolBag(slots[s], rows[slot] + size_t{shared_first[slot]} * slots[s].stride, shared_count[slot], memo);
  }
  for (size_t i = first; i < first + count; ++i, pooled += width) {
    const Samples::Bag* bags = samples.bags(i);
    if (is_shared) std::memcpy(pooled, memo, width * sizeof(float));
    for (size_t s = 0; s < slot_count; ++s) {
      const uint32_t slot = slots[s].slot;
      const Samples::Bag bag = bags[slot];
      if (is_shared && bag.count > 0 && bag.first == shared_first[slot] && shared_count[slot] > 0) continue;
      PoolBag(slots[s], rows[slot] + size_t{bag.first} * slots[s].stride, bag.count, pooled);
    }
  }
}

ELASTICCTR_CLONES void PoolPlaces(const Samples::Bag* bags, const PooledSlot* slots, const uint32_t* places,
                                  size_t count, const float* const* rows, float* row) {
  for (size_t k = 0; k < count; ++k) {
    const PooledSlot& slot = slots[places[k]];
    const Samples::Bag bag = bags[slot.slot];
    PoolBag(slot, rows[slot.slot] + size_t{bag.first} * slot.stride, bag.count, row);
  }
}

}  // namespace

void PoolSample(const Samples& samples, size_t sample, std::span<const PooledSlot> slots,
                std::span<const uint32_t> places, const float* const* rows, float* row) {
  PoolPlaces(samples.bags(sample), slots.data(), places.data(), places.size(), rows, row);
}

void PoolSamples(const Samples& samples, const std::vector<PooledSlot>& slots, const float* const* rows, uint32_t width,
                 std::vector<float>* memo, float* pooled) {
  memo->assign(width, 0.0f);
  for (size_t request = 0; request < samples.requests(); ++request) {
    PoolRequest(samples, request, slots.data(), slots.size(), rows, width, memo->data(), pooled);
  }
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
