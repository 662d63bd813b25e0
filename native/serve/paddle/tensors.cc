#include "serve/paddle/tensors.h"

#include <cstring>

#include "serve/http/status.h"
#include "util/json_text.h"
#include "util/protobuf.h"

namespace elasticctr::serve::paddle {
namespace {

constexpr size_t kMaxDimensions = 16;
constexpr size_t kMaxFetch = 100;

// Element types of tensor_content.
enum ElementType : int32_t { kInt64 = 0, kFloat = 1, kInt32 = 2, kDouble = 3, kInt16 = 4, kUint8 = 7, kInt8 = 8 };

[[noreturn]] void Fail(const Tensor& tensor, const std::string& what) {
  throw Error(Code::kData, "tensor " + NameOf(tensor) + " " + what);
}

template <typename From, typename To>
void Unpack(const Tensor& tensor, std::string_view bytes, std::vector<To>* to) {
  if (bytes.size() % sizeof(From) != 0) {
    Fail(tensor, "has a tensor_content of " + std::to_string(bytes.size()) + " bytes, not a multiple of " +
                     std::to_string(sizeof(From)));
  }
  for (size_t i = 0; i < bytes.size(); i += sizeof(From)) {
    From value;
    std::memcpy(&value, bytes.data() + i, sizeof value);
    to->push_back(static_cast<To>(value));
  }
}

Tensor ReadTensor(protobuf::Reader reader, const Limits& limits) {
  Tensor tensor;
  std::string_view content;
  std::vector<int32_t> int32s;
  std::vector<uint32_t> uint32s;
  std::vector<uint8_t> bools;
  std::vector<double> doubles;
  int32_t type = 0;
  while (reader.Next()) {
    switch (reader.field()) {
      case 1: reader.AppendUint64(&tensor.ints, limits.values); break;
      case 2: reader.AppendFloat(&tensor.floats, limits.values); break;
      case 3: reader.AppendInt32(&int32s, limits.values); break;
      case 4: reader.AppendDouble(&doubles, limits.values); break;
      case 5: reader.AppendUint32(&uint32s, limits.values); break;
      case 6: reader.AppendBool(&bools, limits.values); break;
      case 7:
      case 8: reader.Fail("complex numbers are not read");
      case 9:
        if (tensor.texts.size() >= limits.values) reader.Fail("too many values");
        tensor.texts.push_back(reader.AsString());
        break;
      case 10: type = reader.AsInt32(); break;
      case 11: reader.AppendInt32(&tensor.shape, kMaxDimensions); break;
      case 12: reader.AppendInt32(&tensor.lod, limits.samples + 1); break;
      case 13: tensor.name = reader.AsString(); break;
      case 14: tensor.alias = reader.AsString(); break;
      case 15: content = reader.AsBytes(); break;
      default: break;
    }
  }
  for (int32_t v : int32s) tensor.ints.push_back(static_cast<uint64_t>(int64_t{v}));
  tensor.ints.insert(tensor.ints.end(), uint32s.begin(), uint32s.end());
  tensor.ints.insert(tensor.ints.end(), bools.begin(), bools.end());
  for (double v : doubles) tensor.floats.push_back(static_cast<float>(v));
  if (content.size() / 8 > limits.values) throw TooLarge("tensor " + NameOf(tensor) + " has too many values");
  if (!content.empty()) UnpackContent(content, type, &tensor);
  return tensor;
}

}  // namespace

std::string NameOf(const Tensor& tensor) {
  std::string_view name = tensor.name.empty() ? tensor.alias : tensor.name;
  return "'" + std::string(name.substr(0, 64)) + "'";
}

void UnpackContent(std::string_view bytes, int32_t elem_type, Tensor* tensor) {
  switch (elem_type) {
    case kInt64: return Unpack<int64_t>(*tensor, bytes, &tensor->ints);
    case kFloat: return Unpack<float>(*tensor, bytes, &tensor->floats);
    case kInt32: return Unpack<int32_t>(*tensor, bytes, &tensor->ints);
    case kDouble: return Unpack<double>(*tensor, bytes, &tensor->floats);
    case kInt16: return Unpack<int16_t>(*tensor, bytes, &tensor->ints);
    case kUint8: return Unpack<uint8_t>(*tensor, bytes, &tensor->ints);
    case kInt8: return Unpack<int8_t>(*tensor, bytes, &tensor->ints);
    default: break;
  }
  Fail(*tensor, "has a tensor_content of elem_type " + std::to_string(elem_type) +
                    ", which is not read; send whole numbers as 0 (INT64) and others as 1 (FP32)");
}

void CheckValues(const Tensor& tensor, const Limits& limits, size_t* values) {
  if (!tensor.ints.empty() + !tensor.floats.empty() + !tensor.texts.empty() > 1) {
    Fail(tensor, "has values in more than one field");
  }
  *values += tensor.count();
  if (*values > limits.values) {
    throw TooLarge("the tensors have more than " + std::to_string(limits.values) + " values; send fewer samples");
  }
}

void ReadRequest(std::string_view message, const Limits& limits, TensorRequest* request) {
  protobuf::Reader reader(message, "Request");
  size_t values = 0;
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        if (request->tensors.size() == limits.names) reader.Fail("more tensors than any model here has slots");
        request->tensors.push_back(ReadTensor(reader.AsMessage("Tensor"), limits));
        CheckValues(request->tensors.back(), limits, &values);
        break;
      case 2:
        if (request->fetch.size() == kMaxFetch) reader.Fail("too many names to fetch");
        request->fetch.push_back(reader.AsString());
        break;
      case 3: request->profile = reader.AsBool(); break;
      case 4: request->log_id = reader.AsUint64(); break;
      default: break;
    }
  }
}

void WriteResponse(const TensorAnswer& answer, std::string* out) {
  protobuf::Writer writer(out);
  size_t output = writer.Begin(1);
  for (const TensorAnswer::Output& o : answer.outputs) {
    size_t tensor = writer.Begin(1);
    writer.PackedFloat(2, o.values.data(), o.values.size());
    writer.Int32(10, kFloat);
    const int64_t shape[] = {static_cast<int64_t>(o.rows), static_cast<int64_t>(o.width)};
    writer.PackedInt64(11, shape, 2);
    writer.Bytes(13, o.name);
    writer.Bytes(14, o.name);
    writer.End(tensor);
  }
  writer.Bytes(2, answer.engine);
  writer.End(output);
  if (answer.profile) {
    const int64_t times[] = {static_cast<int64_t>(answer.received_us), static_cast<int64_t>(answer.answered_us)};
    writer.PackedInt64(2, times, 2);
    writer.Bool(3, true);
  }
  if (answer.log_id != 0) writer.Uint64(4, answer.log_id);
}

std::string WriteJsonResponse(const TensorAnswer& answer) {
  std::string out = "{\"outputs\":[{\"tensor\":[";
  for (size_t i = 0; i < answer.outputs.size(); ++i) {
    const TensorAnswer::Output& o = answer.outputs[i];
    out.append(i == 0 ? "{\"float_data\":[" : ",{\"float_data\":[");
    for (size_t j = 0; j < o.values.size(); ++j) {
      if (j != 0) out.push_back(',');
      AppendFloat(&out, o.values[j]);
    }
    out.append("],\"elem_type\":1,\"shape\":[");
    AppendNumber(&out, o.rows);
    out.push_back(',');
    AppendNumber(&out, o.width);
    out.append("],\"name\":");
    AppendJsonString(&out, o.name);
    out.append(",\"alias_name\":");
    AppendJsonString(&out, o.name);
    out.push_back('}');
  }
  out.append("],\"engine_name\":");
  AppendJsonString(&out, answer.engine);
  out.append("}],\"profile_time\":[");
  if (answer.profile) {
    AppendNumber(&out, answer.received_us);
    out.push_back(',');
    AppendNumber(&out, answer.answered_us);
  }
  out.append(answer.profile ? "],\"profile_server\":true,\"log_id\":" : "],\"profile_server\":false,\"log_id\":");
  AppendNumber(&out, answer.log_id);
  out.append(",\"err_no\":0,\"err_msg\":\"\"}");
  return out;
}

}  // namespace elasticctr::serve::paddle
