// Pools the rows of a sample's values into the inputs of the dense graph, bit for bit as versions/scoring.py does: rows
// are added in the order of the values, from 0, in float32; the mean multiplies by 1 / count; a missing row counts as
// zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "serve/codec/samples.h"
#include "serve/version/plan.h"

namespace elasticctr::serve {

// A pooled slot of a plan.
struct PooledSlot {
  uint32_t slot;
  uint32_t stride;  // floats of a row
  bool is_mean;
  std::vector<Piece> pieces;
};

// Fills [samples, width] of `pooled`. rows[slot] has the row of each of the slot's values. Values that the samples of a
// request share are pooled once. Columns of no slot are 0 or unchanged. `memo` is scratch memory.
void PoolSamples(const Samples& samples, const std::vector<PooledSlot>& slots, const float* const* rows, uint32_t width,
                 std::vector<float>* memo, float* pooled);

// Fills the columns of `places`, a subset of `slots`, in the row of one sample.
void PoolSample(const Samples& samples, size_t sample, std::span<const PooledSlot> slots,
                std::span<const uint32_t> places, const float* const* rows, float* row);

// Fills [samples, max_values, dim] of `values`, zeros after each sample's last, and its `lengths`.
void FillSequence(const Samples& samples, uint32_t slot, const SparsePlan& plan, uint32_t stride, const float* rows,
                  float* values, int64_t* lengths);

}  // namespace elasticctr::serve
