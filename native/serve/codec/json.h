// Plain JSON over HTTP (docs/how-to/serve.md).
#pragma once

#include "serve/codec/codec.h"

namespace elasticctr::serve {

const Codec& JsonCodec();

}  // namespace elasticctr::serve
