// Rows by feasign, for remote callers such as pservers: PullRows, InsertRows, PushRows, AddRows.

#include <algorithm>
#include <cstring>
#include <mutex>

#include "table/buffer.h"
#include "table/step_block.h"
#include "table/table.h"
#include "util/hash.h"
#include "util/status.h"
#include "util/thread_pool.h"

namespace elasticctr {
namespace {

constexpr size_t kTaskRows = 1024;  // feasigns per task: fewer do not justify another thread
constexpr size_t kCacheLine = 64;
constexpr size_t kMaxPrefetch = 4 * kCacheLine;

}  // namespace

template <typename Act>
void Table::ForFound(std::span<const uint64_t> feasigns, const uint32_t* known, Act&& act) const {
  const size_t block_size = std::clamp<size_t>((size_t{1} << 15) / layout_.weights_dim(), 1, kMaxStepRows);
  const size_t used = std::min(layout_.stride(), kMaxPrefetch);
  ThreadPool::Default().Run((feasigns.size() + kTaskRows - 1) / kTaskRows, [&](size_t task) {
    uint32_t rows[kMaxStepRows];
    const size_t end = std::min(feasigns.size(), (task + 1) * kTaskRows);
    for (size_t first = task * kTaskRows; first < end; first += block_size) {
      const size_t count = std::min(block_size, end - first);
      if (known != nullptr) {
        FindKnown(feasigns.data() + first, known + first, count, rows);
      } else {
        FindRange(feasigns.data() + first, count, rows);
      }
      for (size_t i = 0; i < count; ++i) {
        for (size_t byte = kCacheLine; byte < used; byte += kCacheLine) __builtin_prefetch(Row(rows[i]) + byte);
      }
      act(first, count, rows);
    }
  });
}

uint64_t Table::PullRows(std::span<const uint64_t> feasigns, float* weights, std::vector<uint32_t>* missing,
                         uint32_t* found) const {
  std::shared_lock reading(mutex_);
  const size_t dim = layout_.weights_dim();
  std::vector<std::vector<uint32_t>> without((feasigns.size() + kTaskRows - 1) / kTaskRows);
  ForFound(feasigns, nullptr, [&](size_t first, size_t count, const uint32_t* rows) {
    if (found != nullptr) std::memcpy(found + first, rows, count * sizeof(uint32_t));
    for (size_t i = 0; i < count; ++i) {
      CopyWeights(rows[i], weights + (first + i) * dim);
      if (rows[i] == 0) without[first / kTaskRows].push_back(static_cast<uint32_t>(first + i));
    }
  });
  for (const auto& part : without) missing->insert(missing->end(), part.begin(), part.end());
  return generation_;
}

void Table::InsertRows(std::span<const uint64_t> feasigns, const uint32_t* occurrences, float* weights) {
  if (feasigns.empty()) return;
  std::unique_lock writing(mutex_);
  ++finds_;
  const size_t dim = layout_.weights_dim();
  for (size_t i = 0; i < feasigns.size(); ++i) {
    const uint64_t feasign = feasigns[i];
    Shard& shard = shards_[ShardOfHash(Mix64(feasign))];
    uint32_t row = FindRow(feasign);
    if (row == 0 && IsAdmitted(shard, feasign, occurrences == nullptr ? 1 : std::max(occurrences[i], 1u))) {
      row = AddRow(shard, feasign);
    }
    if (weights == nullptr) continue;
    CopyWeights(row, weights + i * dim);
  }
}

void Table::PushRows(const RowGradients& push) {
  CheckNow(push.now);
  std::unique_lock writing(mutex_);
  BeginStep(push.rate_scale);
  is_touched_ |= marks_.is_on();
  const uint32_t seen = push.now | (marks_.is_on() ? RowLayout::kTouched : 0);
  const uint32_t* const known = push.generation == generation_ ? push.rows : nullptr;
  ForFound(push.feasigns, known, [&](size_t first, size_t count, const uint32_t* rows) {
    thread_local Buffer<float> scratch;
    float* const gradients = scratch.Reserve(count * layout_.weights_dim());
    push.fill(first, count, gradients);
    const auto at = [&](const auto* array) { return array == nullptr ? nullptr : array + first; };
    StepRows({count, rows, gradients, at(push.masks), at(push.shows), at(push.clicks), 1, push.rate_scale,
              push.gradient_scale, seen});
  });
}

void Table::AddRows(const RowGradients& push) {
  CheckNow(push.now);
  std::unique_lock writing(mutex_);
  is_touched_ |= marks_.is_on();
  const uint32_t seen = push.now | (marks_.is_on() ? RowLayout::kTouched : 0);
  const size_t dim = layout_.weights_dim();
  ForFound(push.feasigns, nullptr, [&](size_t first, size_t count, const uint32_t* rows) {
    thread_local Buffer<float> scratch;
    float* const deltas = scratch.Reserve(count * dim);
    push.fill(first, count, deltas);
    for (size_t i = 0; i < count; ++i) {
      if (rows[i] == 0) continue;
      if (catches_up_) CatchUp(Row(rows[i]));
      float* weights = RowLayout::Floats(Row(rows[i]), layout_.weights_offset());
      for (size_t j = 0; j < dim; ++j) weights[j] += deltas[i * dim + j];
    }
    const auto at = [&](const auto* array) { return array == nullptr ? nullptr : array + first; };
    CountRows({count, rows, deltas, nullptr, at(push.shows), at(push.clicks), 1, 1.0f, 1.0f, seen});
  });
}

}  // namespace elasticctr
