// The error answers to lookups, in the wire protocol and in Redis'.
#pragma once

#include "cube/server/worker.h"
#include "net/wire.h"
#include "util/status.h"

namespace elasticctr::cube {

struct Refusal {
  Code code;
  net::wire::Detail detail;
  const char* message;
  const char* resp;  // a Redis error: its kind, then the message
};

const Refusal& RefusalOf(Miss miss);

}  // namespace elasticctr::cube
