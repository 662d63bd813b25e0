// Plain JSON over HTTP, as docs/serve.md has it.
#pragma once

#include "serve/codec/codec.h"

namespace elasticctr::serve {

const Codec& JsonCodec();

}  // namespace elasticctr::serve
