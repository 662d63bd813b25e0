// Builds a whole frame of docs/formats/wire.md, for messages that are not on a hot path.
#pragma once

#include <string>
#include <string_view>

#include "net/wire.h"

namespace elasticctr::net::wire {

// `header`, with its length set to that of `body`, followed by `body`.
inline std::string MakeFrame(Header header, std::string_view body) {
  header.body_bytes = static_cast<uint32_t>(body.size());
  std::string frame(kHeaderBytes, '\0');
  EncodeHeader(reinterpret_cast<uint8_t*>(frame.data()), header);
  return frame.append(body);
}

}  // namespace elasticctr::net::wire
