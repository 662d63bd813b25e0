// KServe V2 over gRPC: the bytes of a ModelInferRequest (proto/open_inference.proto). grpcio handles gRPC itself
// (serve/kserve/grpc_server.py), so an answer is not a frame but one byte and a payload: 0 and a ModelInferResponse, or
// gRPC's status code and an error message.
#pragma once

#include "serve/codec/codec.h"

namespace elasticctr::serve {

const Codec& KServeGrpcCodec();

}  // namespace elasticctr::serve
