// Shared by the cube bindings: arrays for lookup results, conversion of names.
#pragma once

#include <nanobind/ndarray.h>

#include <string>
#include <utility>
#include <vector>

#include "cube/server/store.h"
#include "util/status.h"

namespace elasticctr {

using Feasigns = nanobind::ndarray<const uint64_t, nanobind::shape<-1>, nanobind::c_contig, nanobind::device::cpu>;

// Uninitialised: the caller must write all elements.
template <typename T>
nanobind::ndarray<nanobind::numpy, T> NewNumpy(std::initializer_list<size_t> shape) {
  size_t size = 1;
  for (const size_t n : shape) size *= n;
  T* data = new T[size];
  nanobind::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return nanobind::ndarray<nanobind::numpy, T>(data, shape, owner);
}

inline cube::Residence ResidenceOf(const std::string& name) {
  if (name == "memory") return cube::Residence::kMemory;
  if (name == "mapped") return cube::Residence::kMapped;
  throw Error(Code::kConfig, "unknown residence '" + name + "'; rows are in memory or mapped");
}

// Runs `lookup` with newly allocated output arrays: (rows, found).
template <typename Lookup>
std::pair<nanobind::ndarray<nanobind::numpy, uint8_t>, nanobind::ndarray<nanobind::numpy, bool>> Ask(
    const cube::IndexInfo& info, Feasigns feasigns, Lookup lookup) {
  const size_t n = feasigns.size();
  auto rows = NewNumpy<uint8_t>({n, info.row_bytes});
  auto mask = NewNumpy<bool>({n});
  cube::LookupResult result;
  {
    nanobind::gil_scoped_release release;
    std::vector<uint8_t> bits((n + 7) / 8);
    size_t hits;
    result = lookup(rows.data(), bits.data(), &hits);
    for (size_t i = 0; i < n; ++i) mask.data()[i] = bits[i / 8] >> (i % 8) & 1;
  }
  if (result == cube::LookupResult::kWrongShard) {
    throw Error(Code::kFailedPrecondition, info.name + ": a feasign of another shard than " +
                                               std::to_string(info.shard) + " of " + std::to_string(info.shards));
  }
  return {rows, mask};
}

}  // namespace elasticctr
