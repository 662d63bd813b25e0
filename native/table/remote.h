// The trainer's side of remote tables: pools fetched rows into a model's inputs and sums its gradients per feasign,
// with the kernels of Table::Pull and Table::Push, so that a remote step computes the same as a local one.
#pragma once

#include <cstdint>
#include <vector>

#include "table/buffer.h"
#include "table/layout.h"
#include "table/lookup.h"
#include "table/table.h"

namespace elasticctr {

// `rows` are [distinct, width]: the weights of all segments of each distinct feasign of the lookup, zeros where it has
// no row. Writes what Table::Pull would. With `places`, [distinct], the row of distinct feasign i is rows[places[i]].
void PoolRows(const Lookup& lookup, const Layout& layout, const float* rows, size_t width,
              const std::vector<Target>& targets, const uint32_t* places = nullptr);

struct SummedGradients {
  Buffer<float> gradients;      // [distinct, width]
  Buffer<float> shows, clicks;  // [distinct]
  Buffer<uint64_t> masks;       // [distinct], bit i: segment i had a gradient; unused unless has_masks
  bool has_masks = false;       // some feasign had no gradient for some segment: a slot does without it, or its value
                                // was cut from a sequence
  bool is_finite = true;
};

// Whether every value and its square are finite: an optimizer's state that became infinite would freeze its weight.
bool AllFinite(const float* values, size_t count);

// Sums each distinct feasign's gradients over its occurrences, as Table::Push does before it steps rows.
void SumGradients(const Lookup& lookup, const Layout& layout, size_t width, const std::vector<Target>& gradients,
                  const PushSamples& samples, SummedGradients* out);

}  // namespace elasticctr
