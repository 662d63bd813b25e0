// Samples under construction, slot by slot. Lines are added one at a time: AddX calls, then Commit, or Discard
// if the line turned out bad. Memory is kept between blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sample/spec.h"
#include "util/target.h"

namespace elasticctr {

class Columns {
 public:
  explicit Columns(const ParserSpec& spec);

  // Forgets all samples, keeps the memory.
  void Clear();

  // Starts a line: labels and weight NaN ("not seen"), show 1, dense missing, no values.
  ELASTICCTR_INLINE void Begin() {
    if (rows_ == row_capacity_) [[unlikely]]
      GrowRows();
    float* label = labels();
    for (size_t i = 0; i < label_count_; ++i) label[i] = __builtin_nanf("");
    float* d = dense();
    for (size_t i = 0; i < dense_dim_; ++i) d[i] = missing_dense_[i];
    *weight() = __builtin_nanf("");
    *show() = 1;
  }

  // Of the line begun.
  float* labels() { return labels_.data() + rows_ * label_count_; }
  float* dense() { return dense_.data() + rows_ * dense_dim_; }
  float* weight() { return weights_.data() + rows_; }
  float* show() { return shows_.data() + rows_; }
  ELASTICCTR_INLINE void AddValue(uint32_t slot, uint64_t feasign) {
    Column& column = slots_[slot];
    if (column.next == column.limit) [[unlikely]]
      GrowValues(&column);
    *column.next++ = feasign;
  }
  // AddValue if `is_there`, without a branch that could be mispredicted.
  ELASTICCTR_INLINE void AddValueIf(bool is_there, uint32_t slot, uint64_t feasign) {
    Column& column = slots_[slot];
    if (column.next == column.limit) [[unlikely]]
      GrowValues(&column);
    *column.next = feasign;
    column.next += is_there;
  }

  // Ends a line: Commit keeps it, with each slot cut to its max_values; Discard drops it.
  ELASTICCTR_INLINE void Commit() {
    for (Column& column : slots_) {
      if (column.next - column.start > column.max_values) [[unlikely]]
        Shorten(&column);
      column.start = column.next;
      column.ends[rows_] = static_cast<int32_t>(column.next - column.begin);
    }
    ++rows_;
  }
  void Discard() {
    for (Column& column : slots_) column.next = column.start;
  }

  // What has been committed.
  size_t rows() const { return rows_; }
  size_t value_count(size_t slot) const { return static_cast<size_t>(slots_[slot].start - slots_[slot].begin); }
  const uint64_t* values(size_t slot) const { return slots_[slot].begin; }
  const int32_t* ends(size_t slot) const { return slots_[slot].ends; }  // of each row's values
  const float* all_labels() const { return labels_.data(); }
  const float* all_dense() const { return dense_.data(); }
  const float* all_weights() const { return weights_.data(); }
  const float* all_shows() const { return shows_.data(); }

 private:
  // One slot's values, row after row.
  struct Column {
    uint64_t* next;   // where the next value goes
    uint64_t* limit;  // end of the memory
    uint64_t* start;  // first value of the line begun
    int32_t* ends;
    int64_t max_values;
    uint64_t* begin;
    size_t stagger;
    bool keep_last;
    std::unique_ptr<uint64_t[]> value_memory;
    std::unique_ptr<int32_t[]> end_memory;
  };

  void GrowRows();
  void GrowValues(Column* column);
  void Shorten(Column* column);

  const size_t label_count_;
  const size_t dense_dim_;
  const std::vector<float> missing_dense_;
  size_t rows_ = 0;
  size_t row_capacity_ = 0;
  std::vector<float> labels_, dense_, weights_, shows_;
  std::vector<Column> slots_;
};

}  // namespace elasticctr
