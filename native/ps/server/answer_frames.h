// Whole frames of a pserver's answers.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "net/wire.h"
#include "ps/shard/shard.h"

namespace elasticctr::ps {

std::string AnswerFrame(const net::wire::Header& request, uint64_t version, std::string_view body);
// For any exception; the frame's detail and version hold what the client can act on.
std::string ErrorFrame(const net::wire::Header& request, const std::exception& error);
std::string PushFrame(const net::wire::Header& request, const PushResult& result, Shard* shard, bool with_dense);

}  // namespace elasticctr::ps
