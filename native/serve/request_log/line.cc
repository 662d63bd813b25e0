#include "serve/request_log/line.h"

#include <charconv>
#include <cmath>

namespace elasticctr::serve {
namespace {

template <typename T>
void AppendNumber(T value, std::string* out) {
  char digits[40];
  out->append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

void AppendFloat(float value, std::string* out) {
  // JSON cannot represent non-finite values, and readers take -0 for an integer without a sign.
  if (!std::isfinite(value)) {
    out->append("null");
  } else if (value == 0 && std::signbit(value)) {
    out->append("-0.0");
  } else {
    AppendNumber(value, out);
  }
}

void AppendText(std::string_view text, std::string* out) {
  constexpr char kHex[] = "0123456789abcdef";
  out->push_back('"');
  size_t start = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out->append(text, start, i - start);
    start = i + 1;
    switch (c) {
      case '"': out->append("\\\""); break;
      case '\\': out->append("\\\\"); break;
      case '\n': out->append("\\n"); break;
      case '\t': out->append("\\t"); break;
      case '\r': out->append("\\r"); break;
      default:
        out->append("\\u00");
        out->push_back(kHex[c >> 4]);
        out->push_back(kHex[c & 15]);
    }
  }
  out->append(text, start);
  out->push_back('"');
}

// Client text may be invalid UTF-8, which a JSON line must not contain.
void AppendForeign(std::string_view name, std::string_view text, std::string* out) {
  out->append(",\"").append(name);
  if (!IsUtf8(text)) out->append("_base64");
  out->append("\":");
  if (IsUtf8(text)) {
    AppendText(text, out);
  } else {
    out->push_back('"');
    out->append(Base64(text)).push_back('"');
  }
}

void AppendFloats(const float* values, size_t count, std::string* out) {
  out->push_back('[');
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) out->push_back(',');
    AppendFloat(values[i], out);
  }
  out->push_back(']');
}

class Rows {
 public:
  explicit Rows(const LoggedRequest& request) : request_(request) {}

  void AppendSlots(std::string* out) {
    out->append("{");
    const uint32_t count = request_.row_bags[row_++];
    for (uint32_t i = 0; i < count; ++i) {
      const LoggedRequest::Bag bag = request_.bags[bag_++];
      if (i > 0) out->push_back(',');
      AppendText(request_.slots->sparse[bag.slot], out);
      out->append(":[");
      for (uint32_t k = 0; k < bag.count; ++k) {
        if (k > 0) out->push_back(',');
        AppendNumber(request_.values[value_++], out);
      }
      out->push_back(']');
    }
    out->push_back('}');
  }

 private:
  const LoggedRequest& request_;
  size_t row_ = 0, bag_ = 0, value_ = 0;
};

void AppendSamples(const LoggedRequest& request, std::string* out) {
  Rows rows(request);
  const float* dense = request.dense.data();
  out->append(",\"shared\":");
  rows.AppendSlots(out);
  out->append(",\"samples\":[");
  for (size_t i = 0; i < request.samples(); ++i) {
    if (i > 0) out->push_back(',');
    out->append("{\"slots\":");
    rows.AppendSlots(out);
    const char* before = ",\"dense\":{";
    for (const LoggedSlots::Dense& slot : request.slots->dense) {
      out->append(before);
      before = ",";
      AppendText(slot.name, out);
      out->push_back(':');
      AppendFloats(dense, slot.dim, out);
      dense += slot.dim;
    }
    if (!request.slots->dense.empty()) out->push_back('}');
    out->append(",\"scores\":");
    AppendFloats(request.scores.data() + i * request.labels, request.labels, out);
    out->push_back('}');
  }
  out->push_back(']');
}

void AppendCoverage(const LoggedRequest& request, std::string* out) {
  out->append(",\"coverage\":{\"asked\":");
  AppendNumber(request.asked, out);
  out->append(",\"found\":");
  AppendNumber(request.found, out);
  out->append(request.is_degraded ? ",\"degraded\":true" : ",\"degraded\":false");
  if (request.is_late) out->append(",\"late\":true");
  if (!request.dead_shards.empty()) {
    out->append(",\"dead_shards\":[");
    for (size_t i = 0; i < request.dead_shards.size(); ++i) {
      if (i > 0) out->push_back(',');
      AppendNumber(request.dead_shards[i], out);
    }
    out->push_back(']');
  }
  out->push_back('}');
}

}  // namespace

size_t LoggedRequest::bytes() const {
  return sizeof *this + id.size() + content_type.size() + body.size() + bags.size() * sizeof(Bag) +
         row_bags.size() * sizeof(uint32_t) + values.size() * sizeof(uint64_t) +
         (dense.size() + scores.size()) * sizeof(float);
}

void AppendLine(const LoggedRequest& request, std::string* out) {
  out->append("{\"format\":1,\"time\":");
  char time[40];
  // Microseconds, never in exponent form.
  out->append(time, std::to_chars(time, time + sizeof time, request.time, std::chars_format::fixed, 6).ptr);
  AppendForeign("id", request.id, out);
  out->append(",\"model\":");
  AppendText(request.model, out);
  out->append(",\"version\":");
  AppendNumber(request.version, out);
  out->append(",\"variant\":");
  AppendText(request.variant, out);
  out->append(",\"protocol\":");
  AppendText(request.protocol, out);
  if (!request.content_type.empty()) AppendForeign("content_type", request.content_type, out);
  if (request.binary_header > 0) {
    out->append(",\"binary_header\":");
    AppendNumber(request.binary_header, out);
  }
  out->append(",\"request_bytes\":");
  AppendNumber(request.body_bytes, out);
  if (request.body.size() == request.body_bytes) AppendForeign("request", request.body, out);
  AppendSamples(request, out);
  AppendCoverage(request, out);
  out->append("}\n");
}

bool IsUtf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const auto c = static_cast<unsigned char>(text[i]);
    const size_t more = c < 0x80 ? 0 : (c & 0xE0) == 0xC0 ? 1 : (c & 0xF0) == 0xE0 ? 2 : (c & 0xF8) == 0xF0 ? 3 : 4;
    if (more == 4 || i + more >= text.size()) return false;
    uint32_t code = more == 0 ? c : c & (0x3Fu >> more);
    for (size_t k = 1; k <= more; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xC0) != 0x80) return false;
      code = code << 6 | (next & 0x3Fu);
    }
    constexpr uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
    if (code < kLeast[more] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
    i += more + 1;
  }
  return true;
}

std::string Base64(std::string_view bytes) {
  constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t have = bytes.size() - i < 3 ? bytes.size() - i : 3;
    uint32_t three = 0;
    for (size_t k = 0; k < 3; ++k) three = three << 8 | (k < have ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) out.push_back(k <= have ? kAlphabet[three >> (18 - 6 * k) & 63] : '=');
  }
  return out;
}

}  // namespace elasticctr::serve
