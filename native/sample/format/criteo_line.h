// The Criteo format: label, 13 numbers, 26 strings, separated by TAB. An empty column is a missing value.
#pragma once

#include <array>

#include "sample/format/line.h"
#include "util/hash.h"

namespace elasticctr {

class CriteoLine : public Line {
 public:
  static constexpr uint32_t kNumbers = 13;
  static constexpr uint32_t kStrings = 26;
  static constexpr uint32_t kColumns = 1 + kNumbers + kStrings;

  // Throws kConfig if the schema's slots cannot be mapped to the columns (docs/formats/text.md).
  CriteoLine(const ParserSpec& spec, Columns* columns);

  // Missing columns occur at random, so the code takes the same branches whether a column is missing or not.
  bool Parse(const char* p, const char* end) {
    const Cell* cell = FindCells(p, end);
    if (cell == nullptr) [[unlikely]]
      return false;
    for (const Number& column : numbers_) {
      const auto [begin, size] = *cell++;
      if (column.dense == nullptr) continue;
      const Digits digits = LeadingDigits(DecodeFixed64(begin));
      if (digits.count == size) [[likely]] {  // a small count, or missing
        PutCount(*column.dense, column.dim, digits.value, size > 0);
      } else {
        double value;
        const char* after = ReadDouble(begin, end, &value);
        if (after != begin + size || !PutDense(*column.dense, column.dim, value)) [[unlikely]] {
          return RejectDense(*column.dense, begin, begin + size);
        }
      }
    }
    for (const String& column : strings_) {
      const auto [begin, size] = *cell++;
      if (column.kind == FieldKind::kString) [[likely]] {
        if (size == 8 || size == 0) [[likely]] {
          columns_->AddValueIf(size > 0, column.slot, FeatureHash8(DecodeFixed64(begin), column.seed));
        } else {
          columns_->AddValue(column.slot, FeatureHash({begin, size}, column.seed));
        }
      } else if (column.kind == FieldKind::kId && size > 0) {
        if (ReadId(column.slot, begin, end) != begin + size) return RejectId(column.slot, begin, begin + size);
      }
    }
    return Finish();
  }

 private:
  struct Cell {
    const char* begin;
    size_t size;
  };
  struct Number {
    const Dense* dense = nullptr;  // nullptr: the schema does not use the column
    uint32_t dim = 0;
  };
  struct String {
    FieldKind kind = FieldKind::kLabel;  // kId, kString, or kLabel: the schema does not use the column
    uint32_t slot = 0;
    uint64_t seed = 0;
  };

  // Cuts the line at its TABs and reads the label. Returns the first number's cell, or nullptr for a bad line.
  const Cell* FindCells(const char* p, const char* end);

  std::array<Number, kNumbers> numbers_;
  std::array<String, kStrings> strings_;
  std::array<Cell, kColumns> cells_;
};

}  // namespace elasticctr
