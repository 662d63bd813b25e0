// Maps paths to codecs. All other paths go to Python (control_queue.h).
#pragma once

#include <string>
#include <string_view>

#include "serve/codec/codec.h"

namespace elasticctr::serve {

struct Route {
  const Codec* codec = nullptr;
  std::string model;    // from the path; empty: none
  std::string version;  // from the path; empty: none
};

// Null codec: not a prediction. Throws DataError for a path with invalid names.
Route FindRoute(std::string_view path);
// The codec of any protocol with this Codec::name(); null: there is none.
const Codec* FindCodec(std::string_view name);

inline constexpr size_t kMaxCodecs = 8;
// The codec's index among all codecs; kMaxCodecs: it is none of them.
size_t IndexOf(const Codec& codec);
// Null: the index is too large.
const Codec* CodecAt(size_t index);

}  // namespace elasticctr::serve
