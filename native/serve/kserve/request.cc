#include "serve/kserve/request.h"

#include <algorithm>

#include "sample/format/line.h"
#include "serve/http/status.h"
#include "serve/kserve/columns.h"
#include "util/number.h"
#include "util/status.h"

namespace elasticctr::serve::kserve {

namespace {

TextFormat FormatOf(std::string_view name) {
  static constexpr std::pair<std::string_view, TextFormat> kFormats[] = {{"feasign", TextFormat::kFeasign},
                                                                         {"slot", TextFormat::kSlot},
                                                                         {"criteo", TextFormat::kCriteo},
                                                                         {"libsvm", TextFormat::kLibsvm},
                                                                         {"libffm", TextFormat::kLibffm}};
  for (const auto& [known, format] : kFormats) {
    if (name == known) return format;
  }
  throw Error(Code::kData, "parameter 'format' must be feasign, slot, criteo, libsvm or libffm");
}

}  // namespace

const std::string* InferRequest::parameter(std::string_view name) const {
  for (const auto& [key, value] : parameters) {
    if (key == name) return &value;
  }
  return nullptr;
}

void InferRequest::ReadTimeout() {
  const std::string* text = parameter("timeout");
  if (text == nullptr) return;
  const auto us = ParseNumber<uint64_t>(*text);
  if (!us) throw Error(Code::kData, "parameter 'timeout' must be a whole number of microseconds");
  timeout_ms = static_cast<uint32_t>(std::min<uint64_t>(*us / 1000 + (*us % 1000 != 0), UINT32_MAX));
}

void InferRequest::AskFor(std::string_view output) {
  if (output != "scores") {
    throw Error(Code::kData, "there is no output " + Quote(output) + "; the model gives 'scores'");
  }
  if (has_outputs_) throw Error(Code::kData, "output 'scores' is asked for twice");
  has_outputs_ = true;
}

std::string Join(const std::vector<std::string>& words, std::string_view between) {
  std::string text;
  for (const std::string& word : words) text.append(text.empty() ? "" : between).append(word);
  return text;
}

void CheckTensorParameter(std::string_view name) {
  if (name.starts_with("shared_memory")) {
    throw Error(Code::kData, "shared memory is not served; send tensors in the request");
  }
  if (name == "classification") {
    throw Error(Code::kData, "classification is not served; ask for the output 'scores' without it");
  }
}

bool InferRequest::Field(std::string_view name, std::string* value) const {
  if (const std::string* text = parameter(name)) {
    *value = *text;
    return true;
  }
  for (const Tensor& input : inputs) {
    if (input.name != name || input.count != 1) continue;
    if (input.type == DataType::kBytes) {
      value->assign(input.texts[0]);
    } else if (SizeOf(input.stored) == 8 && !IsFloat(input.stored)) {
      uint64_t number = DecodeFixed64(input.numbers);
      *value = IsSigned(input.stored) ? std::to_string(static_cast<int64_t>(number)) : std::to_string(number);
    } else {
      continue;
    }
    return true;
  }
  return false;
}

void InferRequest::Fill(Samples* samples, const Limits& limits) const {
  if (inputs.size() == 1 && inputs[0].name == "lines" && !samples->plan().names.contains("lines")) {
    return FillLines(samples, inputs[0], limits);
  }
  Columns(*this, samples->plan(), limits).Fill(samples);
}

void InferRequest::FillLines(Samples* samples, const Tensor& lines, const Limits& limits) const {
  if (lines.type != DataType::kBytes) lines.Fail("lines are BYTES, each a line of a log");
  if (lines.shape.size() == 2 && lines.shape[1] != 1) lines.Fail("must have one line per sample");
  if (lines.count == 0) lines.Fail("has no samples");
  if (lines.count > limits.samples) {
    throw TooLarge("the request has " + std::to_string(lines.count) + " samples; at most " +
                   std::to_string(limits.samples) + " are taken: split it");
  }
  const std::string* format = parameter("format");
  std::string text;
  for (size_t i = 0; i < lines.count; ++i) {
    std::string_view line = lines.texts[i];
    if (line.ends_with('\n')) line.remove_suffix(1);
    if (line.empty() || line.find('\n') != line.npos) {
      lines.Fail("line " + std::to_string(i + 1) + (line.empty() ? " is empty" : " is more than one"));
    }
    text.append(line).push_back('\n');
  }
  samples->BeginRequest();
  const size_t before = samples->size();
  samples->AddLines(format != nullptr ? FormatOf(*format) : samples->plan().spec.format, text);
  if (samples->size() - before != lines.count) lines.Fail("a line holds no sample");
  if (samples->request_values() > limits.values) {
    throw TooLarge("the request has more than " + std::to_string(limits.values) + " feasigns: split it");
  }
  samples->EndRequest();
}

}  // namespace elasticctr::serve::kserve
