// Shared by the line parsers of all formats: converts one value's text to a number and stores it in the line under
// construction. A line parser reads [p, end) of one line, without its line end, and returns whether the line is good;
// if not, reason() says why. It may read kLookahead bytes past `end`; the byte at `end` is a line end or zero, so no
// number continues past it.
//
// Threads: each thread has its own.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "sample/columns.h"
#include "sample/format/field.h"
#include "sample/format/number.h"
#include "sample/spec.h"
#include "sample/transform.h"
#include "util/target.h"

namespace elasticctr {

ELASTICCTR_INLINE bool IsBlank(char c) { return c == ' ' || c == '\t'; }

ELASTICCTR_INLINE const char* SkipBlanks(const char* p, const char* end) {
  while (p < end && IsBlank(*p)) ++p;
  return p;
}

ELASTICCTR_INLINE const char* FindBlank(const char* p, const char* end) {
  while (p < end && !IsBlank(*p)) ++p;
  return p;
}

// The end of a token: a blank or the end of the line.
ELASTICCTR_INLINE bool IsTokenEnd(const char* p, const char* end) { return p == end || IsBlank(*p); }

// The result of a rejected line: false, or no next byte.
struct Rejected {
  operator bool() const { return false; }
  template <typename T>
  operator const T*() const {
    return nullptr;
  }
};

// Text to be shown to people: shortened, unprintable bytes as \xNN, in quotes.
std::string Quote(std::string_view text);

class Line {
 public:
  Line(const ParserSpec& spec, Columns* columns);

  // Why the last line was bad.
  const std::string& reason() const { return reason_; }

 protected:
  // Clears the state of the previous line.
  ELASTICCTR_INLINE void Begin() {
    for (auto& slot : dense_) slot.count = 0;
  }

  // Checks that need the whole line: a label for each name, full dense slots.
  ELASTICCTR_INLINE bool Finish() {
    const float* label = columns_->labels();
    for (size_t i = 0; i < label_count_; ++i) {
      if (label[i] != label[i] && require_label_) [[unlikely]]
        return RejectMissingLabel(i);
    }
    for (const auto& slot : dense_) {
      if (slot.count != slot.dim && slot.count != 0) [[unlikely]]
        return RejectDenseCount(slot);
    }
    float* weight = columns_->weight();
    if (*weight != *weight) *weight = 1;
    return true;
  }

  // Each reads one value at `p` and returns the byte after it, or nullptr for a bad line.
  ELASTICCTR_INLINE const char* ReadLabel(uint32_t index, const char* p, const char* end) {
    double value;
    const char* after = ReadDouble(p, end, &value);
    if (after == nullptr || !(value >= 0 && value <= 1)) [[unlikely]]
      return RejectLabel(index, p, end);
    float* label = columns_->labels() + index;
    if (*label == *label) [[unlikely]]
      return RejectSecondLabel(index);
    *label = static_cast<float>(value);
    return after;
  }
  const char* ReadWeight(const char* p, const char* end);
  ELASTICCTR_INLINE const char* ReadDense(uint32_t slot, const char* p, const char* end) {
    Dense& dense = dense_[slot];
    double value;
    const char* after = ReadDouble(p, end, &value);
    if (after == nullptr || dense.count == dense.dim) [[unlikely]]
      return RejectDense(dense, p, end);
    if (!PutDense(dense, dense.count, value)) [[unlikely]]
      return RejectDense(dense, p, end);
    ++dense.count;
    return after;
  }
  ELASTICCTR_INLINE const char* ReadId(uint32_t slot, const char* p, const char* end) {
    uint64_t feasign;
    const char* after = ReadU64(p, &feasign);
    if (after == nullptr) [[unlikely]]
      return RejectId(slot, p, end);
    columns_->AddValue(slot, feasign);
    return after;
  }

  struct Dense {
    uint32_t dim;
    uint32_t count;   // values seen in this line
    uint32_t offset;  // of the slot's first value in a row of Columns::dense
    Transform transform;
    float missing;
    const DenseSpec* spec;
  };

  // Transforms a value and stores it as dimension `index` of a slot. False if the result is not a finite float.
  ELASTICCTR_INLINE bool PutDense(const Dense& dense, uint32_t index, double value) {
    float result = static_cast<float>(value);
    if (dense.transform != Transform::kNone) result = TransformDense(*dense.spec, index, value);
    columns_->dense()[dense.offset + index] = result;
    return __builtin_isfinite(result);
  }

  // Same for a count of eight digits at most, or for a missing value.
  ELASTICCTR_INLINE void PutCount(const Dense& dense, uint32_t index, uint64_t count, bool is_there) {
    float result = static_cast<float>(static_cast<int64_t>(count));
    if (dense.transform == Transform::kLog1p && count < log1p_table_.size()) {
      result = ScaleLog(*dense.spec, index, log1p_table_[count]);
    } else if (dense.transform != Transform::kNone) {
      result = TransformDense(*dense.spec, index, static_cast<double>(count));
    }
    columns_->dense()[dense.offset + index] = is_there ? result : dense.missing;
  }

  // Records why the line is bad.
  Rejected Reject(std::string reason);
  Rejected RejectMissingLabel(size_t index);
  Rejected RejectDenseCount(const Dense& dense);
  Rejected RejectLabel(size_t index, const char* p, const char* end);
  Rejected RejectSecondLabel(size_t index);
  Rejected RejectDense(const Dense& dense, const char* p, const char* end);
  Rejected RejectId(uint32_t slot, const char* p, const char* end);
  Rejected RejectJunk(std::string_view name, const char* p, const char* end);

  Columns* const columns_;
  const ParserSpec& spec_;
  const size_t label_count_;
  const bool require_label_;
  std::vector<Dense> dense_;

 private:
  static constexpr size_t kLog1pTable = 4096;

  static const std::array<float, kLog1pTable>& Log1pTable();

  const std::array<float, kLog1pTable>& log1p_table_ = Log1pTable();  // counts are small more often than not
  std::string reason_;
};

}  // namespace elasticctr
