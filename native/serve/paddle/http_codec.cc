#include "serve/paddle/http_codec.h"

#include "net/http/http.h"
#include "net/socket.h"
#include "serve/brpc/frame.h"
#include "serve/engine/reasons.h"
#include "serve/http/status.h"
#include "serve/paddle/feed.h"
#include "serve/paddle/json.h"
#include "util/json_text.h"

namespace elasticctr::serve {
namespace {

using paddle::JsonCall;
using paddle::TensorAnswer;

constexpr char kJson[] = "application/json";
constexpr char kProto[] = "application/proto";

bool IsProto(std::string_view type) {
  type = type.substr(0, type.find(';'));
  while (type.ends_with(' ')) type.remove_suffix(1);
  return type == kProto || type == "application/protobuf" || type == "application/x-protobuf";
}

class PaddleParsed final : public Parsed {
 public:
  PaddleParsed(const Request& request, const Limits& limits) : is_proto(IsProto(request.content_type)) {
    if (is_proto) {
      paddle::ReadRequest(request.body, limits, &call.request);
    } else {
      paddle::ReadJson(request.body, limits, &call);
    }
    if (call.request.log_id != 0) id = std::to_string(call.request.log_id);
    if (const std::string* named = call.field("model")) model = *named;
  }

  bool Field(std::string_view name, std::string* value) const override {
    if (name == "log_id" && call.request.log_id != 0) {
      *value = std::to_string(call.request.log_id);
      return true;
    }
    const std::string* text = call.field(name);
    if (text != nullptr) *value = *text;
    return text != nullptr;
  }

  void Fill(Samples* samples, const Limits& limits) const override { paddle::Fill(call.request, limits, samples); }

  const bool is_proto;
  JsonCall call;
};

void AppendRows(std::string* out, const TensorAnswer::Output& output) {
  out->push_back('[');
  for (size_t row = 0; row < output.rows; ++row) {
    out->append(row == 0 ? "[" : ",[");
    for (size_t i = 0; i < output.width; ++i) {
      if (i != 0) out->push_back(',');
      AppendFloat(out, output.values[row * output.width + i]);
    }
    out->push_back(']');
  }
  out->push_back(']');
}

// Each list as a string, as pipeline services return them.
std::string WritePairs(const TensorAnswer& answer) {
  std::string out = "{\"err_no\":0,\"err_msg\":\"\",\"key\":[";
  for (size_t i = 0; i < answer.outputs.size(); ++i) {
    if (i != 0) out.push_back(',');
    AppendJsonString(&out, answer.outputs[i].name);
  }
  out.append("],\"value\":[");
  for (size_t i = 0; i < answer.outputs.size(); ++i) {
    std::string rows;
    AppendRows(&rows, answer.outputs[i]);
    if (i != 0) out.push_back(',');
    AppendJsonString(&out, rows);
  }
  out.append("],\"tensors\":[]}");
  return out;
}

std::string WriteResult(const TensorAnswer& answer) {
  std::string out = "{\"result\":{";
  for (size_t i = 0; i < answer.outputs.size(); ++i) {
    if (i != 0) out.push_back(',');
    AppendJsonString(&out, answer.outputs[i].name);
    out.push_back(':');
    AppendRows(&out, answer.outputs[i]);
  }
  out.append("}}");
  return out;
}

// Headers for the facts that the body's format cannot hold.
std::string Headers(const Reply& reply) {
  std::string out = "X-Model: " + *reply.model + "\r\nX-Model-Version: " + std::to_string(reply.version) +
                    "\r\nX-Model-Variant: " + *reply.variant +
                    "\r\nX-Coverage: " + std::to_string(reply.coverage->found) + "/" +
                    std::to_string(reply.coverage->asked) + "\r\n";
  std::string reasons;
  for (const std::string& reason : ReasonsOf(*reply.coverage)) reasons += (reasons.empty() ? "" : "; ") + reason;
  if (!reasons.empty()) out += "X-Degraded: " + reasons + "\r\n";
  return out;
}

class PaddleHttp final : public Codec {
 public:
  const char* name() const override { return "paddle"; }

  std::unique_ptr<Parsed> Read(const Request& request, const Limits& limits) const override {
    return std::make_unique<PaddleParsed>(request, limits);
  }

  std::string Format(const Request& request, const Parsed* parsed, const Reply& reply) const override {
    const auto& own = static_cast<const PaddleParsed&>(*parsed);
    TensorAnswer answer;
    answer.engine = *reply.model;
    answer.log_id = own.call.request.log_id;
    answer.profile = own.call.request.profile;
    answer.received_us = request.received_ns / 1000;
    answer.answered_us = net::NowNs() / 1000;
    answer.outputs = paddle::MakeOutputs(own.call.request.fetch, *reply.labels, reply.scores, reply.count);
    std::string body;
    if (own.is_proto) {
      paddle::WriteResponse(answer, &body);
    } else {
      switch (own.call.shape) {
        case JsonCall::Shape::kTensors: body = paddle::WriteJsonResponse(answer); break;
        case JsonCall::Shape::kPairs: body = WritePairs(answer); break;
        case JsonCall::Shape::kFeeds: body = WriteResult(answer); break;
      }
    }
    return net::HttpAnswer(200, own.is_proto ? kProto : kJson, body, request.keep_alive, Headers(reply));
  }

  // Always JSON: clients parse a message only from answers with status 200.
  std::string FormatError(const Request& request, const Parsed*, const Error& error) const override {
    std::string body = "{\"err_no\":" + std::to_string(static_cast<int32_t>(brpc::ErrnoOf(error))) + ",\"err_msg\":";
    AppendJsonString(&body, error.what());
    body.push_back('}');
    return net::HttpAnswer(HttpStatusOf(error), kJson, body, request.keep_alive, HttpHeadersOf(error));
  }
};

}  // namespace

const Codec& PaddleHttpCodec() {
  static const PaddleHttp codec;
  return codec;
}

}  // namespace elasticctr::serve
