// Paddle Serving's messages, and the results of requests.
#pragma once

#include <cstring>

#include "serve/brpc/frame.h"
#include "serve/paddle/brpc_codec.h"
#include "serve/paddle/http_codec.h"
#include "tests/check.h"
#include "util/protobuf.h"

namespace elasticctr::serve::paddle {

namespace serve = elasticctr::serve;
namespace brpc = elasticctr::serve::brpc;
using elasticctr::Code;
using elasticctr::Error;
using elasticctr::protobuf::Reader;
using elasticctr::protobuf::Writer;

inline serve::Plan MakePlan(std::vector<std::string> slots) {
  serve::Plan plan;
  plan.labels = {"click"};
  plan.spec.labels = {"click"};
  for (const std::string& slot : slots) {
    plan.spec.sparse.push_back({slot, false, false, 8});
    serve::SparsePlan pooled;
    pooled.max_values = 8;
    pooled.pieces = {{0, 2, static_cast<uint32_t>(2 * plan.sparse.size())}};
    plan.sparse.push_back(pooled);
  }
  plan.spec.dense = {{"I1", 1, {}, {}, {}}, {"I2", 2, {}, {}, {}}};
  plan.dense_columns = {0, 1};
  plan.tables = {{"main", 2}};
  plan.pooled_width = static_cast<uint32_t>(2 * slots.size());
  plan.dense_width = 3;
  plan.Seal();
  return plan;
}

struct Outcome {
  std::string error;
  brpc::Errno number = brpc::Errno::kOk;
};

// Reads and fills; returns the error, if any.
inline Outcome Run(const serve::Codec& codec, const serve::Request& request, serve::Samples* samples,
                   std::unique_ptr<serve::Parsed>* parsed) {
  serve::Limits limits;
  try {
    *parsed = codec.Read(request, limits);
    (*parsed)->Fill(samples, limits);
    return {};
  } catch (const Error& e) {
    samples->DropRequest();
    std::string answer = codec.FormatError(request, parsed->get(), e);
    CHECK(!answer.empty());
    return {e.what(), brpc::ErrnoOf(e)};
  }
}

inline std::string Answer(const serve::Codec& codec, const serve::Request& request, const serve::Parsed& parsed,
                          const std::vector<float>& scores) {
  std::string model = "ctr", variant = "live";
  std::vector<std::string> labels = {"click"};
  serve::Coverage coverage;
  coverage.asked = 3;
  coverage.found = 2;
  serve::Reply reply{&model, 7, &variant, &labels, scores.size(), scores.data(), &coverage};
  return codec.Format(request, &parsed, reply);
}

inline bool Contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace elasticctr::serve::paddle
