// Paddle Serving over HTTP: GeneralModelService, pipeline and web services, as JSON told apart by its keys
// (serve/paddle/json.h) and GeneralModelService's protobuf message by its content type. Errors have bRPC's codes as
// err_no beside their HTTP status. docs/migration/paddle-serving.md.
#pragma once

#include "serve/codec/codec.h"

namespace elasticctr::serve {

const Codec& PaddleHttpCodec();

}  // namespace elasticctr::serve
