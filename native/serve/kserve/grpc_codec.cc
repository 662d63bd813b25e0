#include "serve/kserve/grpc_codec.h"

#include <optional>

#include "serve/engine/reasons.h"
#include "serve/http/status.h"
#include "serve/kserve/request.h"
#include "util/protobuf.h"
#include "util/status_table.h"

namespace elasticctr::serve {

namespace {

using kserve::DataType;
using kserve::Tensor;
using protobuf::Reader;
using protobuf::WireType;
using protobuf::Writer;

constexpr size_t kMaxDimensions = 8;
constexpr size_t kMaxParameters = 256;
constexpr size_t kMaxInputs = 65'536;

std::string TextOf(Reader value) {
  std::string text;
  while (value.Next()) {
    switch (value.field()) {
      case 1: text = value.AsBool() ? "true" : "false"; break;
      case 2: text = std::to_string(value.AsInt64()); break;
      case 3: text = value.AsString(); break;
      case 4: text = std::to_string(value.AsDouble()); break;
      case 5: text = std::to_string(value.AsUint64()); break;
    }
  }
  return text;
}

std::pair<std::string, std::string> ReadParameter(Reader entry) {
  std::pair<std::string, std::string> parameter;
  while (entry.Next()) {
    if (entry.field() == 1) parameter.first = entry.AsString();
    if (entry.field() == 2) parameter.second = TextOf(entry.AsMessage("InferParameter"));
  }
  return parameter;
}

class GrpcInferRequest : public kserve::InferRequest {
 public:
  GrpcInferRequest(std::string_view body, const Limits& limits) : left_(limits.values) {
    std::vector<std::string_view> raw;
    Reader reader(body, "ModelInferRequest");
    while (reader.Next()) {
      switch (reader.field()) {
        case 1: model = reader.AsString(); break;
        case 2: version = reader.AsString(); break;
        case 3: id = reader.AsString(); break;
        case 4:
          if (parameters.size() == kMaxParameters) reader.Fail("there are too many parameters");
          parameters.push_back(ReadParameter(reader.AsMessage("ParametersEntry")));
          break;
        case 5:
          if (inputs.size() == kMaxInputs) reader.Fail("there are too many inputs");
          ReadInput(reader.AsMessage("InferInputTensor"), limits);
          break;
        case 6: ReadOutput(reader.AsMessage("InferRequestedOutputTensor")); break;
        case 7:
          if (raw.size() == kMaxInputs) reader.Fail("there are too many inputs");
          raw.push_back(reader.AsBytes());
          break;
      }
    }
    TakeElements(raw);
    ReadTimeout();
  }

 private:
  void ReadInput(Reader reader, const Limits& limits) {
    Tensor& tensor = inputs.emplace_back();
    std::optional<Reader>& contents = contents_.emplace_back();
    std::string_view type;
    while (reader.Next()) {
      switch (reader.field()) {
        case 1: tensor.name = reader.AsString(); break;
        case 2: type = reader.AsString(); break;
        case 3: reader.AppendInt64(&tensor.shape, kMaxDimensions); break;
        case 4: kserve::CheckTensorParameter(ReadParameter(reader.AsMessage("ParametersEntry")).first); break;
        case 5:
          if (contents.has_value()) reader.Fail("is given twice");
          contents = reader.AsMessage("InferTensorContents");
          break;
      }
    }
    tensor.type = kserve::DataTypeOf(type, tensor.name);
    tensor.SetShape(limits.body_bytes);
  }

  void ReadOutput(Reader reader) {
    std::string_view name;
    while (reader.Next()) {
      if (reader.field() == 1) name = reader.AsString();
      if (reader.field() == 2) kserve::CheckTensorParameter(ReadParameter(reader.AsMessage("ParametersEntry")).first);
    }
    AskFor(name);
  }

  // Takes elements from raw_input_contents, which is for all inputs or for none, or from each input's own contents.
  void TakeElements(const std::vector<std::string_view>& raw) {
    if (!raw.empty() && raw.size() != inputs.size()) {
      throw Error(Code::kData, "there are " + std::to_string(inputs.size()) + " inputs but " +
                                   std::to_string(raw.size()) + " raw_input_contents; send one for each");
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      Tensor& tensor = inputs[i];
      const bool is_list = raw.empty() || tensor.type == DataType::kBytes;
      if (is_list && tensor.count > left_) throw TooLarge("the request has too many elements: split it");
      if (raw.empty()) {
        tensor.SetContents(contents_[i].value_or(Reader({}, "InferTensorContents")), left_);
      } else {
        if (contents_[i].has_value()) tensor.Fail("has both contents and raw_input_contents");
        tensor.SetRaw(raw[i]);
      }
      if (is_list) left_ -= tensor.count;
    }
    contents_.clear();
  }

  size_t left_;  // elements that may still come as lists
  std::vector<std::optional<Reader>> contents_;
};

// Starts an entry of the response's parameters; the value's field follows.
template <typename Write>
void AppendParameter(Writer* writer, std::string_view name, Write write) {
  size_t entry = writer->Begin(4);
  writer->Bytes(1, name);
  size_t value = writer->Begin(2);
  write();
  writer->End(value);
  writer->End(entry);
}

class Grpc : public Codec {
 public:
  const char* name() const override { return "kserve_grpc"; }

  std::unique_ptr<Parsed> Read(const Request& request, const Limits& limits) const override {
    return std::make_unique<GrpcInferRequest>(request.body, limits);
  }

  std::string Format(const Request& request, const Parsed* parsed, const Reply& reply) const override {
    const size_t bytes = reply.count * reply.labels->size() * sizeof(float);
    std::string out;
    out.reserve(512 + bytes);
    out.push_back(0);
    Writer writer(&out);
    writer.Bytes(1, *reply.model);
    writer.Bytes(2, std::to_string(reply.version));
    writer.Bytes(3, parsed->id.empty() ? request.id : parsed->id);
    const Coverage& coverage = *reply.coverage;
    AppendParameter(&writer, "variant", [&] { writer.Bytes(3, *reply.variant); });
    AppendParameter(&writer, "coverage_asked", [&] { writer.Uint64(2, coverage.asked); });
    AppendParameter(&writer, "coverage_found", [&] { writer.Uint64(2, coverage.found); });
    AppendParameter(&writer, "degraded", [&] { writer.Bool(1, coverage.is_degraded()); });
    if (coverage.is_degraded()) {
      AppendParameter(&writer, "reasons", [&] { writer.Bytes(3, kserve::Join(ReasonsOf(coverage), "; ")); });
    }
    AppendParameter(&writer, "labels", [&] { writer.Bytes(3, kserve::Join(*reply.labels, ",")); });
    const int64_t shape[] = {static_cast<int64_t>(reply.count), static_cast<int64_t>(reply.labels->size())};
    size_t output = writer.Begin(5);
    writer.Bytes(1, "scores");
    writer.Bytes(2, "FP32");
    writer.PackedInt64(3, shape, 2);
    writer.End(output);
    writer.Bytes(6, reply.scores, bytes);
    return out;
  }

  std::string FormatError(const Request&, const Parsed*, const Error& error) const override {
    return std::string(1, static_cast<char>(StatusOf(error).grpc)) + error.what();
  }
};

}  // namespace

const Codec& KServeGrpcCodec() {
  static const Grpc codec;
  return codec;
}

}  // namespace elasticctr::serve
