// Conversion of arrays from and to Python, shared by all bindings.
#pragma once

#include <nanobind/ndarray.h>

#include <optional>
#include <string>
#include <vector>

#include "table/layout.h"
#include "table/table.h"
#include "util/status.h"

namespace elasticctr {

namespace nb = nanobind;

using Feasigns = nb::ndarray<const uint64_t, nb::shape<-1>, nb::c_contig, nb::device::cpu>;
using Offsets = nb::ndarray<const int32_t, nb::shape<-1>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<float, nb::device::cpu>;
using Column = nb::ndarray<const float, nb::shape<-1>, nb::device::cpu>;

template <typename T>
using Numpy = nb::ndarray<nb::numpy, T>;

template <typename T>
Numpy<T> MoveToNumpy(std::vector<T>&& from, std::initializer_list<size_t> shape) {
  auto* owned = new std::vector<T>(std::move(from));
  nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return Numpy<T>(owned->data(), shape, owner);
}

template <typename T>
Numpy<T> NewNumpy(std::initializer_list<size_t> shape) {
  size_t size = 1;
  for (const size_t n : shape) size *= n;
  T* data = new T[size]();
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return Numpy<T>(data, shape, owner);
}

inline Target ToTarget(const Floats& array) {
  const size_t n = array.ndim();
  if (n != 2 && n != 3) {
    throw Error(Code::kFailedPrecondition, "an array for pull or push has 2 or 3 dimensions, not " + std::to_string(n));
  }
  if (array.shape(n - 1) > 1 && array.stride(n - 1) != 1) {
    throw Error(Code::kFailedPrecondition, "an array for pull or push needs its columns side by side in memory");
  }
  return {array.data(),
          array.shape(0),
          n == 3 ? array.shape(1) : 0,
          array.shape(n - 1),
          static_cast<size_t>(array.stride(0)),
          n == 3 ? static_cast<size_t>(array.stride(1)) : 0};
}

inline std::vector<Target> ToTargets(const std::vector<Floats>& arrays) {
  std::vector<Target> targets;
  for (const Floats& array : arrays) targets.push_back(ToTarget(array));
  return targets;
}

inline const Column* CheckColumn(const std::optional<Column>& column, size_t samples, const char* name) {
  if (!column) return nullptr;
  if (column->shape(0) != samples) {
    throw Error(Code::kFailedPrecondition, std::string(name) + " has " + std::to_string(column->shape(0)) +
                                               " values for a batch of " + std::to_string(samples) + " samples");
  }
  return &*column;
}

inline PushSamples ToSamples(const std::optional<Column>& clicks, const std::optional<Column>& shows, size_t samples) {
  PushSamples converted;
  if (const Column* column = CheckColumn(clicks, samples, "clicks")) {
    converted.clicks = column->data();
    converted.click_stride = static_cast<size_t>(column->stride(0));
  }
  if (const Column* column = CheckColumn(shows, samples, "shows")) {
    converted.shows = column->data();
    converted.show_stride = static_cast<size_t>(column->stride(0));
  }
  return converted;
}

}  // namespace elasticctr
