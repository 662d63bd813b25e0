#include "sample/format/slot_line.h"

#include <algorithm>

#include "sample/format/separators.h"
#include "util/hash.h"

namespace elasticctr {

SlotLine::SlotLine(const ParserSpec& spec, Columns* columns) : Line(spec, columns), fields_(FieldsOf(spec), ":") {}

size_t SlotLine::FindTokenEnds(const char* p, const char* end) {
  const char* stretch_end = p + std::min<size_t>(kStretch, static_cast<size_t>(end - p));
  size_t count = FindBlanks(p, stretch_end, ends_.data());
  if (stretch_end == end) {
    ends_[count++] = static_cast<uint32_t>(end - p);
  } else if (count == 0) {
    ends_[count++] = static_cast<uint32_t>(FindBlank(stretch_end, end) - p);
  }
  return count;
}

Field* SlotLine::Recognize(const char* token, const char* token_end) {
  const std::string_view text(token, static_cast<size_t>(token_end - token));
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) {
    Reject(Quote(text) + " is not of the form slot:value");
    return nullptr;
  }
  Field* field = fields_.Find(text.substr(0, colon));
  return field == nullptr ? fields_.nobody() : field;
}

bool SlotLine::ReadAnyValue(const Field& field, const char* p, const char* token_end, const char* end) {
  const char* after = nullptr;
  switch (field.kind) {
    case FieldKind::kId: after = ReadId(field.index, p, end); break;
    case FieldKind::kDense: after = ReadDense(field.index, p, end); break;
    case FieldKind::kString: after = ReadString(field, p, end); break;
    case FieldKind::kLabel: after = ReadLabel(field.index, p, end); break;
    case FieldKind::kWeight: after = ReadWeight(p, end); break;
  }
  if (after == nullptr) return false;
  return after == token_end || RejectJunk(field.name, after, end);
}

const char* SlotLine::ReadString(const Field& field, const char* p, const char* end) {
  const char* after = FindBlank(p, end);
  if (after == p) return Reject("slot '" + field.name + "' has an empty value");
  columns_->AddValue(field.index, FeatureHash({p, static_cast<size_t>(after - p)}, field.seed));
  return after;
}

Rejected SlotLine::RejectLength() { return Reject("the line is over 2^31 bytes long"); }

}  // namespace elasticctr
