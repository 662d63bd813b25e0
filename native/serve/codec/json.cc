#include "serve/codec/json.h"

#include <array>

#include "net/http/http.h"
#include "serve/codec/json_samples.h"
#include "serve/engine/reasons.h"
#include "serve/http/status.h"
#include "util/json_reader.h"
#include "util/json_text.h"

namespace elasticctr::serve {
namespace {

constexpr size_t kMaxFields = 64;  // unknown keys of a request
constexpr size_t kMaxIdBytes = 256;

enum Key : size_t { kSamples, kUser, kCandidates, kLines, kFormat, kValues, kIgnoreUnknown, kId, kTimeout, kKeys };
constexpr std::array<std::string_view, kKeys> kNames = {
    "samples", "user", "candidates", "lines", "format", "values", "ignore_unknown", "id", "timeout_ms"};

[[noreturn]] void Refuse(const std::string& message) { throw Error(Code::kData, message); }

TextFormat FormatOf(std::string_view name) {
  constexpr std::pair<std::string_view, TextFormat> kFormats[] = {{"feasign", TextFormat::kFeasign},
                                                                  {"slot", TextFormat::kSlot},
                                                                  {"criteo", TextFormat::kCriteo},
                                                                  {"libsvm", TextFormat::kLibsvm},
                                                                  {"libffm", TextFormat::kLibffm}};
  for (const auto& [known, format] : kFormats) {
    if (known == name) return format;
  }
  Refuse("\"format\" must be feasign, slot, criteo, libsvm or libffm");
}

// Keys whose values Fill parses completely: here only their text is located.
bool IsLong(std::string_view key) {
  return key == kNames[kSamples] || key == kNames[kCandidates] || key == kNames[kLines];
}

// The text of a string, number or boolean; false: another kind.
bool TextOf(std::string_view value, std::string* text) {
  JsonReader reader(value, 1);
  switch (reader.Peek()) {
    case JsonReader::Kind::kString: text->assign(reader.String()); return true;
    case JsonReader::Kind::kNumber:
    case JsonReader::Kind::kBool: text->assign(value); return true;
    default: return false;
  }
}

class JsonParsed : public Parsed {
 public:
  JsonParsed(std::string_view body, const Limits& limits) {
    JsonReader reader(body, limits.json_depth);
    std::string_view key;
    reader.BeginObject();
    while (reader.NextKey(&key)) Take(key, IsLong(key) ? reader.SkipBrackets() : reader.Skip());
    reader.End();
    ReadOptions();
  }

  bool Field(std::string_view name, std::string* value) const override {
    for (const auto& [key, text] : fields_) {
      if (key == name) return TextOf(text, value);
    }
    if (name == kNames[kId] && !id.empty()) {
      *value = id;
      return true;
    }
    return FieldOfUser(name, value);
  }

  void Fill(Samples* samples, const Limits& limits) const override {
    JsonSampleReader reader(samples, limits, {values_are_feasigns_, ignores_unknown_});
    samples->BeginRequest();
    if (has(kLines)) {
      reader.AddLines(at(kLines), has(kFormat) ? format_ : samples->plan().spec.format);
    } else {
      if (has(kUser)) reader.AddShared(at(kUser));
      reader.AddSamples(at(has(kSamples) ? kSamples : kCandidates), has(kSamples) ? "samples" : "candidates");
    }
    samples->EndRequest();
  }

 private:
  bool has(Key key) const { return known_[key].data() != nullptr; }
  std::string_view at(Key key) const { return known_[key]; }

  void Take(std::string_view key, std::string_view value) {
    for (size_t i = 0; i < kKeys; ++i) {
      if (key != kNames[i]) continue;
      if (has(static_cast<Key>(i))) Refuse("\"" + std::string(key) + "\" is there twice");
      known_[i] = value;
      return;
    }
    for (const auto& field : fields_) {
      if (field.first == key) Refuse("\"" + std::string(key.substr(0, 80)) + "\" is there twice");
    }
    if (fields_.size() == kMaxFields) throw TooLarge("a request has over " + std::to_string(kMaxFields) + " own keys");
    fields_.emplace_back(key, value);
  }

  void ReadOptions() {
    if (has(kSamples) + has(kCandidates) + has(kLines) != 1) {
      Refuse("a request needs one of \"samples\", \"candidates\" (with \"user\") and \"lines\"");
    }
    if (has(kUser) && !has(kCandidates)) Refuse("\"user\" needs \"candidates\"");
    if (has(kFormat) && !has(kLines)) Refuse("\"format\" needs \"lines\"");
    if (has(kFormat)) format_ = FormatOf(JsonReader(at(kFormat), 1, "\"format\"").String());
    if (has(kValues)) {
      JsonReader reader(at(kValues), 1, "\"values\"");
      std::string_view name = reader.String();
      if (name != "feasigns" && name != "log") Refuse("\"values\" must be \"log\" or \"feasigns\"");
      values_are_feasigns_ = name == "feasigns";
      if (has(kLines)) Refuse("\"values\" is for samples and candidates, not for lines");
    }
    if (has(kIgnoreUnknown)) ignores_unknown_ = JsonReader(at(kIgnoreUnknown), 1, "\"ignore_unknown\"").Bool();
    if (has(kId)) {
      const bool is_truth = at(kId) == "true" || at(kId) == "false";
      if (is_truth || !TextOf(at(kId), &id)) Refuse("\"id\" must be a string or a number");
      if (id.size() > kMaxIdBytes) Refuse("\"id\" is over " + std::to_string(kMaxIdBytes) + " bytes");
    }
    if (has(kTimeout)) {
      uint64_t given = JsonReader(at(kTimeout), 1, "\"timeout_ms\"").Uint64();
      if (given == 0 || given > net::kMaxTimeoutMs) {
        Refuse("\"timeout_ms\" must be a whole number from 1 to " + std::to_string(net::kMaxTimeoutMs));
      }
      timeout_ms = static_cast<uint32_t>(given);
    }
  }

  bool FieldOfUser(std::string_view name, std::string* value) const {
    if (!has(kUser) || at(kUser)[0] != '{') return false;
    JsonReader reader(at(kUser), 64);
    std::string_view key;
    reader.BeginObject();
    while (reader.NextKey(&key)) {
      bool is_it = key == name;
      std::string_view text = reader.Skip();
      if (is_it) return TextOf(text, value);
    }
    return false;
  }

  // Texts of values, in the body.
  std::array<std::string_view, kKeys> known_{};
  std::vector<std::pair<std::string, std::string_view>> fields_;
  TextFormat format_ = TextFormat::kSlot;
  bool values_are_feasigns_ = false;
  bool ignores_unknown_ = false;
};

const std::string& IdOf(const Request& request, const Parsed* parsed) {
  return parsed != nullptr && !parsed->id.empty() ? parsed->id : request.id;
}

void AppendScores(std::string* out, const Reply& reply) {
  const size_t labels = reply.labels->size();
  out->append(",\"scores\":[");
  for (size_t i = 0; i < reply.count; ++i) {
    if (i != 0) out->push_back(',');
    if (labels > 1) out->push_back('[');
    for (size_t k = 0; k < labels; ++k) {
      if (k != 0) out->push_back(',');
      AppendFloat(out, reply.scores[i * labels + k]);
    }
    if (labels > 1) out->push_back(']');
  }
  out->push_back(']');
  if (labels < 2) return;
  out->append(",\"labels\":[");
  for (size_t k = 0; k < labels; ++k) {
    if (k != 0) out->push_back(',');
    AppendJsonString(out, (*reply.labels)[k]);
  }
  out->push_back(']');
}

class Json : public Codec {
 public:
  const char* name() const override { return "json"; }

  std::unique_ptr<Parsed> Read(const Request& request, const Limits& limits) const override {
    return std::make_unique<JsonParsed>(request.body, limits);
  }

  std::string Format(const Request& request, const Parsed* parsed, const Reply& reply) const override {
    std::string body;
    body.reserve(256 + 13 * reply.count * reply.labels->size());
    body.append("{\"model\":");
    AppendJsonString(&body, *reply.model);
    body.append(",\"version\":");
    AppendNumber(&body, reply.version);
    body.append(",\"variant\":");
    AppendJsonString(&body, *reply.variant);
    body.append(",\"id\":");
    AppendJsonString(&body, IdOf(request, parsed));
    AppendScores(&body, reply);
    const Coverage& coverage = *reply.coverage;
    body.append(",\"coverage\":{\"asked\":");
    AppendNumber(&body, coverage.asked);
    body.append(",\"found\":");
    AppendNumber(&body, coverage.found);
    body.append(coverage.is_degraded() ? ",\"degraded\":true,\"reasons\":[" : ",\"degraded\":false}}");
    if (coverage.is_degraded()) {
      const auto reasons = ReasonsOf(coverage);
      for (size_t i = 0; i < reasons.size(); ++i) {
        if (i != 0) body.push_back(',');
        AppendJsonString(&body, reasons[i]);
      }
      body.append("]}}");
    }
    return net::HttpAnswer(200, "application/json", body, request.keep_alive);
  }

  std::string FormatError(const Request& request, const Parsed*, const Error& error) const override {
    return HttpErrorAnswer(error, request.keep_alive);
  }
};

}  // namespace

const Codec& JsonCodec() {
  static const Json codec;
  return codec;
}

}  // namespace elasticctr::serve
