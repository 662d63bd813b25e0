// How many rows one optimizer step takes at a time.
#pragma once

#include <cstddef>

namespace elasticctr {

inline constexpr size_t kMaxStepRows = 64;

}  // namespace elasticctr
