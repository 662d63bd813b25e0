#include "serve/paddle/brpc_codec.h"

#include "net/socket.h"
#include "serve/brpc/frame.h"
#include "serve/engine/reasons.h"
#include "serve/http/status.h"
#include "serve/paddle/feed.h"
#include "serve/paddle/tensors.h"
#include "util/protobuf.h"

namespace elasticctr::serve {
namespace {

using brpc::BrpcError;
using brpc::Errno;

constexpr std::string_view kCtrService = "baidu.paddle_serving.predictor.ctr_prediction.CTRPredictionService";
constexpr std::string_view kGeneralService = "baidu.paddle_serving.predictor.general_model.GeneralModelService";

// Matches `service` by its full name or, as some clients send it, without its package.
bool IsService(std::string_view service, std::string_view full) {
  return service == full || service == full.substr(full.rfind('.') + 1);
}

class BrpcParsed : public Parsed {
 public:
  explicit BrpcParsed(brpc::RequestMeta m) : meta(std::move(m)) {}
  brpc::RequestMeta meta;  // points into the request's body

  bool Field(std::string_view name, std::string* value) const override {
    for (const auto& [key, text] : meta.user_fields) {
      if (key != name) continue;
      *value = text;
      return true;
    }
    if (name == "log_id" && meta.log_id != 0) {
      *value = std::to_string(meta.log_id);
      return true;
    }
    if (name == "request_id" && !meta.request_id.empty()) {
      *value = meta.request_id;
      return true;
    }
    return false;
  }
  virtual void WriteMessage(const Request& request, const Reply& reply, std::string* out) const = 0;
};

// Instances of as many ids as the schema has sparse slots and as many floats as it has dense values.
class CtrParsed final : public BrpcParsed {
 public:
  CtrParsed(brpc::RequestMeta meta, std::string_view message, const Limits& limits) : BrpcParsed(std::move(meta)) {
    protobuf::Reader reader(message, "ctr_prediction.Request");
    while (reader.Next()) {
      if (reader.field() != 1) continue;
      if (ends_.size() == limits.samples) {
        throw TooLarge("more than " + std::to_string(limits.samples) + " instances, the limit; send fewer at once");
      }
      protobuf::Reader instance = reader.AsMessage("CTRReqInstance");
      while (instance.Next()) {
        if (instance.field() == 1) instance.AppendUint64(&ids_, limits.values);
        if (instance.field() == 2) instance.AppendFloat(&floats_, limits.values);
      }
      ends_.push_back({ids_.size(), floats_.size()});
    }
    if (ends_.empty()) throw Error(Code::kData, "the request has no instances; send at least one");
  }

  void Fill(Samples* samples, const Limits&) const override {
    const ParserSpec& spec = samples->plan().spec;
    End start{0, 0};
    for (size_t n = 0; n < ends_.size(); ++n) {
      Check(n, "sparse_ids", ends_[n].ids - start.ids, spec.sparse.size(), "sparse slots");
      Check(n, "dense_ids", ends_[n].floats - start.floats, spec.dense_dim(), "dense values");
      start = ends_[n];
    }
    samples->BeginRequest();
    samples->AddRows(ends_.size(), ids_.data(), floats_.data());
    samples->EndRequest();
  }

  void WriteMessage(const Request&, const Reply& reply, std::string* out) const override {
    protobuf::Writer writer(out);
    for (size_t i = 0; i < reply.count; ++i) {
      const float score = reply.scores[i * reply.labels->size()];
      size_t instance = writer.Begin(1);
      writer.Float(1, 1.0f - score);
      writer.Float(2, score);
      writer.End(instance);
    }
    writer.Int64(2, 0);
  }

 private:
  struct End {
    size_t ids, floats;
  };

  static void Check(size_t n, const char* field, size_t got, size_t expected, const char* what) {
    if (got == expected) return;
    throw Error(Code::kData, "instance " + std::to_string(n) + " has " + std::to_string(got) + " " + field +
                                 "; the model has " + std::to_string(expected) + " " + what);
  }

  std::vector<uint64_t> ids_;
  std::vector<float> floats_;
  std::vector<End> ends_;
};

class GeneralParsed final : public BrpcParsed {
 public:
  GeneralParsed(brpc::RequestMeta meta, std::string_view message, const Limits& limits) : BrpcParsed(std::move(meta)) {
    paddle::ReadRequest(message, limits, &tensors_);
    if (tensors_.log_id != 0) id = std::to_string(tensors_.log_id);
  }

  bool Field(std::string_view name, std::string* value) const override {
    if (name != "log_id" || tensors_.log_id == 0) return BrpcParsed::Field(name, value);
    *value = std::to_string(tensors_.log_id);
    return true;
  }

  void Fill(Samples* samples, const Limits& limits) const override { paddle::Fill(tensors_, limits, samples); }

  void WriteMessage(const Request& request, const Reply& reply, std::string* out) const override {
    paddle::TensorAnswer answer;
    answer.engine = *reply.model;
    answer.log_id = tensors_.log_id;
    answer.profile = tensors_.profile;
    answer.received_us = request.received_ns / 1000;
    answer.answered_us = net::NowNs() / 1000;
    answer.outputs = paddle::MakeOutputs(tensors_.fetch, *reply.labels, reply.scores, reply.count);
    paddle::WriteResponse(answer, out);
  }

 private:
  paddle::TensorRequest tensors_;
};

// The message after a body's meta, without the attachment.
std::string_view MessageOf(const Request& request, const brpc::RequestMeta& meta) {
  std::string_view message = std::string_view(request.body).substr(request.binary_header);
  if (!meta.is_request) throw Error(Code::kData, "RpcMeta has no request");
  if (meta.is_stream) throw Error(Code::kData, "streams and chunks are not served; send whole requests");
  if (meta.compress_type != 0) {
    throw Error(Code::kData, "compress_type " + std::to_string(meta.compress_type) +
                                 " is not served; send requests uncompressed (COMPRESS_TYPE_NONE)");
  }
  if (meta.attachment_bytes < 0 || static_cast<uint64_t>(meta.attachment_bytes) > message.size()) {
    throw Error(Code::kData, "attachment_size is " + std::to_string(meta.attachment_bytes) + ", the request has " +
                                 std::to_string(message.size()) + " bytes");
  }
  return message.substr(0, message.size() - static_cast<size_t>(meta.attachment_bytes));
}

class Brpc final : public Codec {
 public:
  const char* name() const override { return "brpc"; }

  std::unique_ptr<Parsed> Read(const Request& request, const Limits& limits) const override {
    if (request.binary_header > request.body.size()) throw Error(Code::kData, "the body is shorter than its meta");
    brpc::RequestMeta meta = brpc::ReadRequestMeta(std::string_view(request.body).substr(0, request.binary_header));
    std::string_view message = MessageOf(request, meta);
    bool is_ctr = IsService(meta.service, kCtrService);
    if (!is_ctr && !IsService(meta.service, kGeneralService)) {
      throw BrpcError(Errno::kNoService, Code::kNotFound,
                      "no service '" + std::string(meta.service.substr(0, 128)) + "' here; there are " +
                          std::string(kCtrService) + " and " + std::string(kGeneralService));
    }
    if (meta.method != "inference" && meta.method != "debug") {
      throw BrpcError(Errno::kNoMethod, Code::kNotFound,
                      "no method '" + std::string(meta.method.substr(0, 128)) + "'; there are inference and debug");
    }
    if (is_ctr) return std::make_unique<CtrParsed>(std::move(meta), message, limits);
    return std::make_unique<GeneralParsed>(std::move(meta), message, limits);
  }

  std::string Format(const Request& request, const Parsed* parsed, const Reply& reply) const override {
    std::string message;
    static_cast<const BrpcParsed*>(parsed)->WriteMessage(request, reply, &message);
    const std::string version = std::to_string(reply.version);
    const std::string coverage = std::to_string(reply.coverage->found) + "/" + std::to_string(reply.coverage->asked);
    std::string reasons;
    for (const std::string& reason : ReasonsOf(*reply.coverage)) reasons += (reasons.empty() ? "" : "; ") + reason;
    brpc::ResponseMeta meta;
    meta.correlation_id = request.call_id;
    meta.user_fields = {
        {"model", *reply.model}, {"version", version}, {"variant", *reply.variant}, {"coverage", coverage}};
    if (!reasons.empty()) meta.user_fields.emplace_back("degraded", reasons);
    return brpc::FormatResponse(meta, message);
  }

  std::string FormatError(const Request& request, const Parsed*, const Error& error) const override {
    return brpc::FormatErrorResponse(request.call_id, error);
  }
};

}  // namespace

const Codec& BrpcCodec() {
  static const Brpc codec;
  return codec;
}

}  // namespace elasticctr::serve
