#include "serve/kserve/http_codec.h"

#include <optional>

#include "net/http/http.h"
#include "sample/format/line.h"
#include "serve/engine/reasons.h"
#include "serve/http/status.h"
#include "serve/kserve/request.h"
#include "util/json_reader.h"
#include "util/json_text.h"

namespace elasticctr::serve {

namespace {

using kserve::DataType;
using kserve::Tensor;

constexpr size_t kMaxDimensions = 8;
constexpr size_t kMaxParameters = 256;

class HttpInferRequest : public kserve::InferRequest {
 public:
  HttpInferRequest(std::string_view head, std::string_view binary, const Limits& limits)
      : reader_(head, limits.json_depth), depth_(limits.json_depth), left_(limits.values), binary_(binary) {
    std::string_view key;
    for (reader_.BeginObject(); reader_.NextKey(&key);) {
      if (key == "id") {
        id = reader_.String();
      } else if (key == "parameters") {
        ReadParameters();
      } else if (key == "inputs") {
        if (!inputs.empty()) reader_.Fail("\"inputs\" is given twice");
        for (reader_.BeginArray(); reader_.NextElement();) ReadInput(limits);
      } else if (key == "outputs") {
        for (reader_.BeginArray(); reader_.NextElement();) ReadOutput();
      } else {
        reader_.Skip();
      }
    }
    reader_.End();
    if (!binary_.empty()) {
      throw Error(Code::kData,
                  std::to_string(binary_.size()) + " bytes follow the inputs; their binary_data_size is wrong");
    }
    ReadTimeout();
  }

  bool is_binary() const { return is_binary_.value_or(binary_by_default_); }

 private:
  // The text of a scalar.
  std::string ReadScalar() {
    switch (reader_.Peek()) {
      case JsonReader::Kind::kString: return std::string(reader_.String());
      case JsonReader::Kind::kNumber: return std::string(reader_.Number());
      case JsonReader::Kind::kBool: return reader_.Bool() ? "true" : "false";
      default: reader_.Fail("a parameter is a string, a number, true or false");
    }
  }

  void ReadParameters() {
    std::string_view key;
    for (reader_.BeginObject(); reader_.NextKey(&key);) {
      if (key == "binary_data_output") {
        binary_by_default_ = reader_.Bool();
        continue;
      }
      if (parameters.size() == kMaxParameters) reader_.Fail("there are too many parameters");
      parameters.emplace_back(key, ReadScalar());
    }
  }

  void ReadOutput() {
    std::string_view key, name;
    std::optional<bool> is_binary;
    for (reader_.BeginObject(); reader_.NextKey(&key);) {
      if (key == "name") {
        name = reader_.String();
      } else if (key == "parameters") {
        for (reader_.BeginObject(); reader_.NextKey(&key);) {
          kserve::CheckTensorParameter(key);
          if (key == "binary_data") {
            is_binary = reader_.Bool();
          } else {
            reader_.Skip();
          }
        }
      } else {
        reader_.Skip();
      }
    }
    AskFor(name);
    is_binary_ = is_binary;
  }

  void ReadShape(Tensor* tensor) {
    for (reader_.BeginArray(); reader_.NextElement();) {
      if (tensor->shape.size() == kMaxDimensions) reader_.Fail("a shape has too many dimensions");
      tensor->shape.push_back(reader_.Int64());
    }
  }

  void ReadInput(const Limits& limits) {
    Tensor& tensor = inputs.emplace_back();
    // A repeated key could put elements of one type under the name of another.
    enum : unsigned { kName = 1, kShape = 2, kType = 4, kParameters = 8, kData = 16 };
    unsigned seen = 0;
    auto see = [&](unsigned which) {
      if (seen & which) reader_.Fail("an input has a key twice");
      seen |= which;
    };
    std::string_view key, data;
    std::optional<uint64_t> binary_size;
    for (reader_.BeginObject(); reader_.NextKey(&key);) {
      if (key == "name") {
        see(kName);
        tensor.name = reader_.String();
      } else if (key == "shape") {
        see(kShape);
        ReadShape(&tensor);
      } else if (key == "datatype") {
        see(kType);
        tensor.type = kserve::DataTypeOf(reader_.String(), tensor.name);
      } else if (key == "parameters") {
        see(kParameters);
        for (reader_.BeginObject(); reader_.NextKey(&key);) {
          kserve::CheckTensorParameter(key);
          if (key == "binary_data_size") {
            binary_size = reader_.Uint64();
          } else {
            reader_.Skip();
          }
        }
      } else if (key == "data") {
        see(kData);
        if ((seen & kShape) && (seen & kType)) {
          tensor.SetShape(limits.body_bytes);
          TakeJson(&tensor, &reader_);
        } else {
          data = reader_.Skip();
        }
      } else {
        reader_.Skip();
      }
    }
    if ((seen & (kName | kShape | kType)) != (kName | kShape | kType)) {
      reader_.Fail("an input must have name, shape and datatype");
    }
    if (((seen & kData) != 0) == binary_size.has_value()) {
      tensor.Fail("must have either data or binary_data_size");
    }
    tensor.SetShape(limits.body_bytes);
    if (binary_size.has_value()) {
      TakeBinary(&tensor, *binary_size);
    } else if (!data.empty()) {
      TakeJson(&tensor, &kept_readers_.emplace_back(data, depth_));
    }
  }

  void TakeJson(Tensor* tensor, JsonReader* reader) {
    tensor->SetJson(reader, left_);
    left_ -= tensor->count;
  }

  void TakeBinary(Tensor* tensor, uint64_t size) {
    if (size > binary_.size()) {
      tensor->Fail("has binary_data_size " + std::to_string(size) + " where " + std::to_string(binary_.size()) +
                   " bytes are left; is Inference-Header-Content-Length right?");
    }
    if (tensor->type == DataType::kBytes && tensor->count > left_) throw TooLarge("the request has too many strings");
    tensor->SetRaw(binary_.substr(0, size));
    binary_.remove_prefix(size);
    if (tensor->type == DataType::kBytes) left_ -= tensor->count;
  }

  JsonReader reader_;  // and those of data that came before its shape: tensors have views into them
  std::deque<JsonReader> kept_readers_;
  uint32_t depth_;
  size_t left_;  // elements that may still come as lists
  std::string_view binary_;
  bool binary_by_default_ = false;
  std::optional<bool> is_binary_;
};

void AppendReply(std::string* out, const Request& request, const HttpInferRequest& parsed, const Reply& reply) {
  *out += "{\"model_name\":";
  AppendJsonString(out, *reply.model);
  *out += ",\"model_version\":\"";
  AppendNumber(out, reply.version);
  *out += "\"";
  const std::string& id = parsed.id.empty() ? request.id : parsed.id;
  if (!id.empty()) {
    *out += ",\"id\":";
    AppendJsonString(out, id);
  }
  *out += ",\"parameters\":{\"variant\":";
  AppendJsonString(out, *reply.variant);
  *out += ",\"coverage_asked\":";
  AppendNumber(out, reply.coverage->asked);
  *out += ",\"coverage_found\":";
  AppendNumber(out, reply.coverage->found);
  *out += reply.coverage->is_degraded() ? ",\"degraded\":true" : ",\"degraded\":false";
  if (reply.coverage->is_degraded()) {
    *out += ",\"reasons\":";
    AppendJsonString(out, kserve::Join(ReasonsOf(*reply.coverage), "; "));
  }
  *out += ",\"labels\":";
  AppendJsonString(out, kserve::Join(*reply.labels, ","));
  *out += "},\"outputs\":[{\"name\":\"scores\",\"datatype\":\"FP32\",\"shape\":[";
  AppendNumber(out, reply.count);
  *out += ",";
  AppendNumber(out, reply.labels->size());
  *out += "],";
}

class Http : public Codec {
 public:
  const char* name() const override { return "kserve"; }

  std::unique_ptr<Parsed> Read(const Request& request, const Limits& limits) const override {
    std::string_view body = request.body;
    if (request.binary_header > body.size()) {
      throw Error(Code::kData, "Inference-Header-Content-Length is beyond the end of the body");
    }
    const size_t head = request.binary_header == 0 ? body.size() : request.binary_header;
    return std::make_unique<HttpInferRequest>(body.substr(0, head), body.substr(head), limits);
  }

  std::string Format(const Request& request, const Parsed* parsed, const Reply& reply) const override {
    const auto& asked = static_cast<const HttpInferRequest&>(*parsed);
    const size_t count = reply.count * reply.labels->size();
    std::string body;
    body.reserve(512 + count * 12);
    AppendReply(&body, request, asked, reply);
    if (asked.is_binary()) {
      body += "\"parameters\":{\"binary_data_size\":";
      AppendNumber(&body, count * sizeof(float));
      body += "}}]}";
      std::string extra = "Inference-Header-Content-Length: " + std::to_string(body.size()) + "\r\n";
      body.append(reinterpret_cast<const char*>(reply.scores), count * sizeof(float));
      return net::HttpAnswer(200, "application/octet-stream", body, request.keep_alive, extra);
    }
    body += "\"data\":[";
    for (size_t i = 0; i < count; ++i) {
      if (i != 0) body.push_back(',');
      AppendFloat(&body, reply.scores[i]);
    }
    body += "]}]}";
    return net::HttpAnswer(200, "application/json", body, request.keep_alive);
  }

  std::string FormatError(const Request& request, const Parsed*, const Error& error) const override {
    std::string body = "{\"error\":";
    AppendJsonString(&body, error.what());
    body += "}";
    return net::HttpAnswer(HttpStatusOf(error), "application/json", body, request.keep_alive, HttpHeadersOf(error));
  }
};

}  // namespace

const Codec& KServeHttpCodec() {
  static const Http codec;
  return codec;
}

}  // namespace elasticctr::serve
