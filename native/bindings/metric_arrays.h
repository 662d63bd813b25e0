// Array types of the metric bindings.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "metric/loss_kernel.h"
#include "metric/pairs.h"
#include "util/status.h"

namespace elasticctr {

using Floats = nanobind::ndarray<const float, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using Groups = nanobind::ndarray<const uint64_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using Offsets = nanobind::ndarray<const int32_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using Rows = nanobind::ndarray<nanobind::numpy, double, nanobind::ndim<2>, nanobind::c_contig>;
using Feasigns = nanobind::ndarray<nanobind::numpy, uint64_t, nanobind::ndim<1>, nanobind::c_contig>;

// Checks that all lengths match; returns the weights' array or null.
inline const float* CheckedWeights(size_t n, const Floats& labels, const std::optional<Floats>& weights) {
  if (labels.shape(0) != n || (weights && weights->shape(0) != n)) {
    throw Error(Code::kFailedPrecondition, "scores, labels, weights and groups must have the same length; there are " +
                                               std::to_string(n) + " scores and " + std::to_string(labels.shape(0)) +
                                               " labels");
  }
  return weights ? weights->data() : nullptr;
}

inline Rows ToRows(const std::vector<double>& flat, size_t columns) {
  auto* data = new double[flat.size()];
  std::copy(flat.begin(), flat.end(), data);
  nanobind::capsule owner(data, [](void* p) noexcept { delete[] static_cast<double*>(p); });
  return Rows(data, {flat.size() / columns, columns}, owner);
}

inline nanobind::bytes ToBytes(const std::string& text) { return nanobind::bytes(text.data(), text.size()); }

inline Feasigns ToFeasigns(const std::vector<uint64_t>& values) {
  auto* data = new uint64_t[values.size()];
  std::copy(values.begin(), values.end(), data);
  nanobind::capsule owner(data, [](void* p) noexcept { delete[] static_cast<uint64_t*>(p); });
  return Feasigns(data, {values.size()}, owner);
}

inline double Unscale(metric::UInt128 sum, int bits = metric::kSumBits) {
  return static_cast<double>(sum) / static_cast<double>(uint64_t{1} << bits);
}

}  // namespace elasticctr
