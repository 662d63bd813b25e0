#include "ps/client/sums.h"

#include <algorithm>
#include <string>

#include "table/remote.h"
#include "util/status.h"

namespace elasticctr::ps {

void CheckTable(const GradientTable& table, uint32_t dim) {
  const size_t count = table.feasigns.size();
  if (table.shows.size() != count || table.clicks.size() != count || table.gradients.size() != count * dim ||
      (!table.masks.empty() && table.masks.size() != count)) {
    throw Error(Code::kFailedPrecondition, "a push of " + std::to_string(count) +
                                               " feasigns needs as many shows and clicks and rows of " +
                                               std::to_string(dim) + " gradients");
  }
}

bool IsFinite(std::span<const GradientTable> tables) {
  return std::all_of(tables.begin(), tables.end(), [](const GradientTable& table) {
    return AllFinite(table.gradients.data(), table.gradients.size()) &&
           AllFinite(table.shows.data(), table.shows.size()) && AllFinite(table.clicks.data(), table.clicks.size());
  });
}

std::vector<GradientTable> SumAll(std::span<const Lookup* const> lookups, std::span<const Layout* const> layouts,
                                  std::span<const std::vector<Target>> gradients, const PushSamples& samples,
                                  std::span<const uint32_t> dims, bool* is_finite) {
  if (lookups.size() != dims.size() || layouts.size() != dims.size() || gradients.size() != dims.size()) {
    throw Error(Code::kFailedPrecondition,
                "a lookup, a layout and gradients are needed for each of " + std::to_string(dims.size()) + " tables");
  }
  thread_local std::vector<SummedGradients> scratch;
  if (scratch.size() < dims.size()) scratch.resize(dims.size());
  std::vector<GradientTable> tables;
  *is_finite = true;
  for (size_t t = 0; t < dims.size(); ++t) {
    SummedGradients& sums = scratch[t];
    SumGradients(*lookups[t], *layouts[t], dims[t], gradients[t], samples, &sums);
    *is_finite &= sums.is_finite;
    const size_t n = lookups[t]->distinct();
    tables.push_back({{lookups[t]->feasigns(), n},
                      {sums.shows.data(), n},
                      {sums.clicks.data(), n},
                      {sums.masks.data(), sums.has_masks ? n : 0},
                      {sums.gradients.data(), n * dims[t]}});
  }
  return tables;
}

}  // namespace elasticctr::ps
