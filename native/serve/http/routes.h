// Which codec a path belongs to. All other paths go to Python (control_queue.h).
#pragma once

#include <string>
#include <string_view>

#include "serve/codec/codec.h"

namespace elasticctr::serve {

struct Route {
  const Codec* codec = nullptr;
  std::string model;    // named by the path; empty: not
  std::string version;  // named by the path; empty: not
};

// Null codec: not a prediction. Throws DataError for a path whose names cannot be read.
Route FindRoute(std::string_view path);
// By Codec::name(), of all protocols; null: none is called that.
const Codec* FindCodec(std::string_view name);

inline constexpr size_t kMaxCodecs = 8;
// Its place among all codecs; kMaxCodecs: it is none of them.
size_t IndexOf(const Codec& codec);
// Null: there are not so many.
const Codec* CodecAt(size_t index);

}  // namespace elasticctr::serve
