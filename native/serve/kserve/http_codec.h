// KServe V2 over HTTP: `POST /v2/models/{model}[/versions/{version}]/infer` with tensors in JSON or, with the binary
// tensor extension, after the JSON (Inference-Header-Content-Length gives its length).
#pragma once

#include "serve/codec/codec.h"

namespace elasticctr::serve {

const Codec& KServeHttpCodec();

}  // namespace elasticctr::serve
