// Paddle Serving over HTTP: GeneralModelService, pipeline and web services. JSON bodies are told apart by their keys
// (serve/paddle/json.h), GeneralModelService's protobuf message by its content type. Errors carry bRPC's codes as
// err_no in addition to their HTTP status. docs/migration/paddle-serving.md.
#pragma once

#include "serve/codec/codec.h"

namespace elasticctr::serve {

const Codec& PaddleHttpCodec();

}  // namespace elasticctr::serve
