// The feasign format: `show click feasign:slot feasign:slot …`, separated by blanks. Unlike in the slot format, the
// slot's name comes last. Unknown slots are skipped.
#pragma once

#include "sample/format/line.h"

namespace elasticctr {

class FeasignLine : public Line {
 public:
  // Throws kConfig if the schema has dense slots.
  FeasignLine(const ParserSpec& spec, Columns* columns);

  bool Parse(const char* p, const char* end) {
    p = ReadShowAndClick(p, end);
    if (p == nullptr) [[unlikely]]
      return false;
    Field* last = fields_.nobody();
    for (;;) {
      p = SkipBlanks(p, end);
      if (p == end) return Finish();
      uint64_t feasign;
      const char* after = ReadU64(p, &feasign);
      const bool is_id = after != nullptr && *after == ':';
      const char* name = is_id ? after + 1 : p;
      Field* field = last->next;
      if (!is_id || !IsNamed(field, name, end)) [[unlikely]] {
        if (is_id && IsNamed(last, name, end)) {
          field = last;
        } else {
          const Slow slow = ReadSlowly(&p, end);
          if (slow.is_bad) return false;
          if (slow.field != nullptr) {
            last = last->next = slow.field;
          }
          continue;
        }
      }
      if (field->kind == FieldKind::kId) [[likely]] {
        columns_->AddValue(field->index, feasign);
      } else {
        AddString(*field, p, after);
      }
      p = name + field->length;
      last = field;
    }
  }

 private:
  struct Slow {
    bool is_bad;
    Field* field;  // nullptr: an unknown slot
  };

  ELASTICCTR_INLINE static bool IsNamed(const Field* field, const char* p, const char* end) {
    return p < end && field->Matches(p, end) && IsTokenEnd(p + field->length, end);
  }

  const char* ReadShowAndClick(const char* p, const char* end);
  // Reads the token at *p, whatever it holds, and moves *p past it.
  Slow ReadSlowly(const char** p, const char* end);
  void AddString(const Field& field, const char* p, const char* after);

  FieldIndex fields_;
};

}  // namespace elasticctr
