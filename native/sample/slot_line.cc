#include "sample/slot_line.h"

#include "util/hash.h"

namespace elasticctr {

SlotLine::SlotLine(const ParserSpec& spec, Columns* columns) : Line(spec, columns), fields_(FieldsOf(spec)) {}

const char* SlotLine::FindColon(const char* p, const char* end) {
  for (; p < end && !IsBlank(*p); ++p) {
    if (*p == ':') return p;
  }
  return nullptr;
}

const char* SlotLine::ReadString(const Field& field, const char* p, const char* end) {
  const char* after = FindBlank(p, end);
  if (after == p) return Reject("slot '" + field.name + "' has an empty value");
  columns_->AddValue(field.index, FeatureHash({p, static_cast<size_t>(after - p)}, field.seed));
  return after;
}

Rejected SlotLine::RejectToken(const char* p, const char* end) {
  return Reject(Quote({p, static_cast<size_t>(FindBlank(p, end) - p)}) + " is not of the form slot:value");
}

}  // namespace elasticctr
