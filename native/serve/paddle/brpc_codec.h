// The services of Paddle Serving over bRPC: CTRPredictionService (26 ids and 13 floats in Paddle Serving; here as many
// as the schema has slots) and GeneralModelService (tensors by name, serve/paddle/feed.h).
// docs/migration/paddle-serving.md.
//
// A request's body is an RpcMeta of `binary_header` bytes followed by the message, as BrpcSession extracts them.
#pragma once

#include "serve/codec/codec.h"

namespace elasticctr::serve {

const Codec& BrpcCodec();

}  // namespace elasticctr::serve
