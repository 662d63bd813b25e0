// The slot format: `name:value name:value …`, separated by blanks, in any order. Labels, weight and dense are just
// slots. A slot given again has one value more; a slot not given has none; unknown slots are skipped.
#pragma once

#include "sample/line.h"

namespace elasticctr {

class SlotLine : public Line {
 public:
  SlotLine(const ParserSpec& spec, Columns* columns);

  bool Parse(const char* p, const char* end) {
    Begin();
    Field** guess = fields_.first();
    Field* last = nullptr;
    for (;;) {
      p = SkipBlanks(p, end);
      if (p == end) return Finish();
      Field* field = *guess;
      if (!IsNamed(field, p, end)) [[unlikely]] {
        if (IsNamed(last, p, end)) {
          field = last;
        } else {
          const char* colon = FindColon(p, end);
          if (colon == nullptr) return RejectToken(p, end);
          field = fields_.Find({p, static_cast<size_t>(colon - p)});
          if (field == nullptr) {
            p = FindBlank(colon, end);
            continue;
          }
          *guess = field;
        }
      }
      p = ReadValue(field, p + field->length + 1, end);
      if (p == nullptr) [[unlikely]]
        return false;
      last = field;
      guess = &field->next;
    }
  }

 private:
  ELASTICCTR_INLINE static bool IsNamed(const Field* field, const char* p, const char* end) {
    return field != nullptr && field->Matches(p, end) && p[field->length] == ':';
  }

  // The colon that ends the name at `p`, or nullptr.
  static const char* FindColon(const char* p, const char* end);

  // Reads the value at `p`, and for a dense slot all that follow under the same name.
  ELASTICCTR_INLINE const char* ReadValue(const Field* field, const char* p, const char* end) {
    switch (field->kind) {
      case FieldKind::kId: p = ReadId(field->index, p, end); break;
      case FieldKind::kDense:
        for (;;) {
          p = ReadDense(field->index, p, end);
          if (p == nullptr || *p != ' ' || !IsNamed(field, p + 1, end)) break;
          p += 1 + field->length + 1;
        }
        break;
      case FieldKind::kString: return ReadString(*field, p, end);
      case FieldKind::kLabel: p = ReadLabel(field->index, p, end); break;
      case FieldKind::kWeight: p = ReadWeight(p, end); break;
    }
    if (p != nullptr && !IsTokenEnd(p, end)) [[unlikely]]
      return RejectJunk(field->name, p, end);
    return p;
  }
  const char* ReadString(const Field& field, const char* p, const char* end);
  Rejected RejectToken(const char* p, const char* end);

  FieldIndex fields_;
};

}  // namespace elasticctr
