// Gradients of a batch, table by table, in the form that pushes and mergers take. Internal to native/ps.
#pragma once

#include <span>
#include <vector>

#include "ps/client/client.h"

namespace elasticctr::ps {

// Throws kFailedPrecondition unless every feasign has a show, a click and `dim` gradients.
void CheckTable(const GradientTable& table, uint32_t dim);
bool IsFinite(std::span<const GradientTable> tables);

// Sums each table's gradients per feasign. The result is valid until the next call on this thread.
std::vector<GradientTable> SumAll(std::span<const Lookup* const> lookups, std::span<const Layout* const> layouts,
                                  std::span<const std::vector<Target>> gradients, const PushSamples& samples,
                                  std::span<const uint32_t> dims, bool* is_finite);

}  // namespace elasticctr::ps
