// The slot format: `name:value name:value …`, separated by blanks, in any order. Labels, weight and dense are ordinary
// slots. A repeated slot has several values; an absent slot has none; unknown slots are skipped.
#pragma once

#include "sample/format/line.h"

namespace elasticctr {

class SlotLine : public Line {
 public:
  SlotLine(const ParserSpec& spec, Columns* columns);

  bool Parse(const char* p, const char* end) {
    Begin();
    if (end - p > INT32_MAX) [[unlikely]]
      return RejectLength();
    Field* last = fields_.nobody();
    while (p < end) {
      // Finds all blanks first: the start of a token is then known before the previous one is read.
      const uint32_t* token_at = ends_.data();
      const uint32_t* const stop = token_at + FindTokenEnds(p, end);
      const char* token = p;
      for (; token_at != stop; ++token_at) {
        const char* token_end = p + *token_at;
        if (token == token_end) {
          ++token;
          continue;
        }
        Field* field = last->next;
        if (!field->Matches(token, end)) [[unlikely]] {
          if (last->Matches(token, end)) {
            field = last;
          } else {
            field = Recognize(token, token_end);
            if (field == nullptr) return false;
            if (field == fields_.nobody()) {
              token = token_end + 1;
              continue;
            }
            last->next = field;
          }
        }
        if (!ReadValue(*field, token + field->length, token_end, end)) [[unlikely]]
          return false;
        token = token_end + 1;
        if (field->kind == FieldKind::kDense) {  // a slot of several values has its name before each
          for (; token_at + 1 != stop && field->Matches(token, end); token = token_end + 1) {
            token_end = p + *++token_at;
            if (!ReadValue(*field, token + field->length, token_end, end)) [[unlikely]]
              return false;
          }
        }
        last = field;
      }
      p = token;
    }
    return Finish();
  }

 private:
  static constexpr size_t kStretch = 4096;  // bytes of a line looked at together

  // The field of a token that no guess matched; nobody() if the slot is unknown, nullptr for a bad line.
  Field* Recognize(const char* token, const char* token_end);
  // Writes the offsets from `p` at which the next tokens end to ends_, at least one. Returns their number.
  size_t FindTokenEnds(const char* p, const char* end);

  // Reads the value [p, token_end). False for a bad line.
  ELASTICCTR_INLINE bool ReadValue(const Field& field, const char* p, const char* token_end, const char* end) {
    const auto size = static_cast<size_t>(token_end - p);
    if (field.kind == FieldKind::kId && size > 0) {
      uint64_t feasign;
      if (ReadShortU64(p, size, &feasign)) [[likely]] {
        columns_->AddValue(field.index, feasign);
        return true;
      }
    } else if (field.kind == FieldKind::kDense) {
      Dense& dense = dense_[field.index];
      double value;
      if (ReadShortDouble(p, size, &value) && dense.count < dense.dim) [[likely]]
        return PutDense(dense, dense.count++, value) || RejectDense(dense, p, end);
    }
    return ReadAnyValue(field, p, token_end, end);
  }
  bool ReadAnyValue(const Field& field, const char* p, const char* token_end, const char* end);
  const char* ReadString(const Field& field, const char* p, const char* end);
  Rejected RejectLength();

  FieldIndex fields_;
  std::array<uint32_t, kStretch + 64> ends_;
};

}  // namespace elasticctr
