// The Criteo format: label, 13 numbers, 26 strings, separated by TAB. An empty column is a missing value.
#pragma once

#include <array>

#include "sample/line.h"
#include "util/hash.h"

namespace elasticctr {

class CriteoLine : public Line {
 public:
  static constexpr uint32_t kNumbers = 13;
  static constexpr uint32_t kStrings = 26;

  // Throws kConfig if the schema's slots cannot be matched with the columns (docs/formats/text.md).
  CriteoLine(const ParserSpec& spec, Columns* columns);

  bool Parse(const char* p, const char* end) {
    const char* line = p;
    p = ReadLabelColumn(p, end);  // from here on: the first byte of a column, or end + 1 if there is none left
    if (p == nullptr) [[unlikely]]
      return false;
    for (const Number& column : numbers_) {
      if (p > end) [[unlikely]]
        return RejectColumns(line, end);
      const char* after = p;
      if (*p == '\t' || column.dense == nullptr) {
        after = FindTab(p, end);
      } else if (p < end) {
        double value;
        after = ReadDouble(p, end, &value);
        if (after == nullptr || !IsColumnEnd(after, end) || !PutDense(*column.dense, column.dim, value)) [[unlikely]] {
          return RejectDense(*column.dense, p, end);
        }
      }
      p = after + 1;
    }
    for (const String& column : strings_) {
      if (p > end) [[unlikely]]
        return RejectColumns(line, end);
      const char* after = FindTab(p, end);
      if (after != p && column.kind != FieldKind::kLabel) {
        if (column.kind == FieldKind::kString) [[likely]] {
          columns_->AddValue(column.slot, FeatureHash({p, static_cast<size_t>(after - p)}, column.seed));
        } else if (ReadId(column.slot, p, end) != after) {
          return RejectId(column.slot, p, end);
        }
      }
      p = after + 1;
    }
    if (p != end + 1) [[unlikely]]
      return RejectColumns(line, end);
    return Finish();
  }

 private:
  struct Number {
    const Dense* dense = nullptr;  // nullptr: the schema does not use the column
    uint32_t dim = 0;
  };
  struct String {
    FieldKind kind = FieldKind::kLabel;  // kId, kString, or kLabel: the schema does not use the column
    uint32_t slot = 0;
    uint64_t seed = 0;
  };

  ELASTICCTR_INLINE static bool IsColumnEnd(const char* p, const char* end) { return p == end || *p == '\t'; }

  // The TAB at or after `p`, or `end`.
  ELASTICCTR_INLINE static const char* FindTab(const char* p, const char* end) {
    constexpr uint64_t kOnes = 0x0101010101010101ULL;
    for (; p < end; p += 8) {
      const uint64_t x = DecodeFixed64(p) ^ (kOnes * '\t');
      const uint64_t tabs = (x - kOnes) & ~x & (kOnes * 0x80);
      if (tabs != 0) {
        p += __builtin_ctzll(tabs) >> 3;
        break;
      }
    }
    return p < end ? p : end;
  }

  // Returns the first byte of the next column.
  const char* ReadLabelColumn(const char* p, const char* end);
  Rejected RejectColumns(const char* line, const char* end);

  std::array<Number, kNumbers> numbers_;
  std::array<String, kStrings> strings_;
};

}  // namespace elasticctr
