#include "sample/columns.h"

#include <algorithm>
#include <cstring>

#include "util/status.h"

namespace elasticctr {
namespace {

// All slots grow in step. If their arrays started at the same offset in a page, as large allocations do, their ends
// would compete for the same few cache lines; so each slot starts some cache lines later.
constexpr size_t kStaggerBytes = 192;
constexpr size_t kStaggers = 64;
constexpr size_t kMinRows = 1024;

}  // namespace

Columns::Columns(const ParserSpec& spec)
    : label_count_(spec.labels.size()), dense_dim_(spec.dense_dim()), missing_dense_(spec.missing_dense()) {
  for (const auto& slot : spec.sparse) {
    Column column{};
    column.max_values = slot.max_values;
    column.keep_last = slot.keep_last;
    column.stagger = slots_.size() % kStaggers * kStaggerBytes;
    slots_.push_back(std::move(column));
  }
}

void Columns::Clear() {
  rows_ = 0;
  for (Column& column : slots_) column.next = column.start = column.begin;
}

void Columns::GrowRows() {
  const size_t capacity = std::max(kMinRows, row_capacity_ * 2);
  labels_.resize(capacity * label_count_);
  dense_.resize(capacity * dense_dim_);
  weights_.resize(capacity);
  shows_.resize(capacity);
  for (Column& column : slots_) {
    const size_t skip = column.stagger / sizeof(int32_t);
    std::unique_ptr<int32_t[]> memory(new int32_t[capacity + skip]);
    std::copy_n(column.ends, rows_, memory.get() + skip);
    column.ends = memory.get() + skip;
    column.end_memory = std::move(memory);
  }
  row_capacity_ = capacity;
}

void Columns::GrowValues(Column* column) {
  const size_t size = static_cast<size_t>(column->next - column->begin);
  const size_t started = static_cast<size_t>(column->start - column->begin);
  const size_t capacity = std::max(kMinRows, size * 2);
  if (capacity > INT32_MAX) {
    throw Error(Code::kFailedPrecondition, "a block holds over 2^30 values of one slot; read smaller blocks");
  }
  const size_t skip = column->stagger / sizeof(uint64_t);
  std::unique_ptr<uint64_t[]> memory(new uint64_t[capacity + skip]);
  std::copy_n(column->begin, size, memory.get() + skip);
  column->begin = memory.get() + skip;
  column->next = column->begin + size;
  column->start = column->begin + started;
  column->limit = column->begin + capacity;
  column->value_memory = std::move(memory);
}

void Columns::Shorten(Column* column) {
  if (column->keep_last) {
    std::memmove(column->start, column->next - column->max_values,
                 static_cast<size_t>(column->max_values) * sizeof(uint64_t));
  }
  column->next = column->start + column->max_values;
}

}  // namespace elasticctr
