#include "sample/format/criteo_line.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "sample/format/separators.h"
#include "util/status.h"

namespace elasticctr {
namespace {

// The number in a name such as I7 or C26, or 0.
uint32_t ColumnNumber(const std::string& name, char letter, uint32_t count) {
  uint32_t number = 0;
  if (name.size() < 2 || name[0] != letter || name[1] == '0') return 0;
  const auto [after, error] = std::from_chars(name.data() + 1, name.data() + name.size(), number);
  return error == std::errc() && after == name.data() + name.size() && number <= count ? number : 0;
}

}  // namespace

CriteoLine::CriteoLine(const ParserSpec& spec, Columns* columns) : Line(spec, columns) {
  const bool numbers_by_name = std::ranges::all_of(
      spec.dense, [](const auto& slot) { return slot.dim == 1 && ColumnNumber(slot.name, 'I', kNumbers) > 0; });
  if (!numbers_by_name && spec.dense_dim() != kNumbers) {
    throw Error(Code::kConfig,
                "format criteo has 13 numbers: name dense slots I1 to I13, or declare dense slots of 13 "
                "dimensions in all; the schema has " +
                    std::to_string(spec.dense_dim()));
  }
  uint32_t column = 0;
  for (size_t i = 0; i < spec.dense.size(); ++i) {
    for (uint32_t dim = 0; dim < spec.dense[i].dim; ++dim) {
      numbers_[numbers_by_name ? ColumnNumber(spec.dense[i].name, 'I', kNumbers) - 1 : column++] = {&dense_[i], dim};
    }
  }
  const bool strings_by_name =
      std::ranges::all_of(spec.sparse, [](const auto& slot) { return ColumnNumber(slot.name, 'C', kStrings) > 0; });
  if (!strings_by_name && spec.sparse.size() != kStrings) {
    throw Error(Code::kConfig,
                "format criteo has 26 strings: name sparse slots C1 to C26, or declare 26 of them; the "
                "schema has " +
                    std::to_string(spec.sparse.size()));
  }
  for (size_t i = 0; i < spec.sparse.size(); ++i) {
    const SparseSpec& slot = spec.sparse[i];
    strings_[strings_by_name ? ColumnNumber(slot.name, 'C', kStrings) - 1 : i] = {
        slot.hashed ? FieldKind::kString : FieldKind::kId, static_cast<uint32_t>(i),
        SlotSeed(slot.hash_name(), spec.hash_seed)};
  }
}

const CriteoLine::Cell* CriteoLine::FindCells(const char* p, const char* end) {
  if (end - p > INT32_MAX) return Reject("the line is over 2^31 bytes long");
  uint32_t tabs[kMaxTabs + 64];
  const size_t columns = FindTabs(p, end, tabs) + 1;
  // A log to be scored may lack the label column, as Criteo's own test set does.
  const bool has_label = require_label_ || columns != kColumns - 1;
  if (columns != kColumns && has_label) {
    return Reject("expected " + std::to_string(kColumns) + " columns separated by TAB, found " +
                  (columns > kMaxTabs ? "over " + std::to_string(kMaxTabs) : std::to_string(columns)));
  }
  size_t begin = 0;
  tabs[columns - 1] = static_cast<uint32_t>(end - p);
  for (size_t i = 0; i < columns; ++i) {
    cells_[i] = {p + begin, tabs[i] - begin};
    begin = size_t{tabs[i]} + 1;
  }
  if (!has_label) return cells_.data();
  const char* after = ReadLabel(0, p, end);
  if (after == nullptr) return nullptr;
  if (after != p + cells_[0].size) return RejectLabel(0, p, end);
  return cells_.data() + 1;
}

}  // namespace elasticctr
