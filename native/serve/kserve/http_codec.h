// KServe V2 over HTTP: `POST /v2/models/{model}[/versions/{version}]/infer` with tensors in JSON or, by the binary
// tensor extension, behind it (Inference-Header-Content-Length says where the JSON ends).
#pragma once

#include "serve/codec/codec.h"

namespace elasticctr::serve {

const Codec& KServeHttpCodec();

}  // namespace elasticctr::serve
