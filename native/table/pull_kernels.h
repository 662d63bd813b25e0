// Copies rows into a model's input, wherever the rows are: Table::Pull and PoolRows call this per block of samples.
// Blocks are small enough that a block of the output stays in cache while slot after slot is written into it; the rows
// of the next slot are fetched meanwhile. Included by those two only.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "table/layout.h"
#include "table/lookup.h"
#include "table/row.h"
#include "util/target.h"
#include "util/thread_pool.h"

namespace elasticctr {
namespace {

constexpr size_t kBlock = 64;  // samples
constexpr size_t kCacheLine = 64;
constexpr size_t kMaxPrefetch = 4;  // lines per row; the hardware follows longer ones

// Cache lines of a row to fetch ahead.
inline uint32_t PrefetchLines(size_t stride, size_t width) {
  const size_t straddling = stride % kCacheLine == 0 ? 0 : 1;
  const size_t lines = (width * sizeof(float) + kCacheLine - 1) / kCacheLine + straddling;
  return static_cast<uint32_t>(std::min(lines, kMaxPrefetch));
}

// Where weights are: `first` is the first weight of row 0. kIsFound: `rows` holds the row of each distinct feasign, as
// Table::Find writes it; otherwise there is one per distinct feasign, in the lookup's order.
template <bool kIsFound>
struct Source {
  const std::byte* first;
  size_t stride;
  uint32_t prefetch_lines;
  const Lookup& lookup;
  const uint32_t* rows;

  ELASTICCTR_INLINE const std::byte* Weights(size_t occurrence) const {
    const uint32_t distinct = lookup.inverse()[occurrence];
    const uint32_t row = kIsFound ? rows[distinct] : distinct;
    return first + static_cast<size_t>(row) * stride;
  }
  ELASTICCTR_INLINE const std::byte* Fetch(size_t occurrence) const {
    const std::byte* weights = Weights(occurrence);
    for (uint32_t line = 0; line < prefetch_lines; ++line) __builtin_prefetch(weights + line * kCacheLine);
    return weights;
  }
};

struct Piece {
  uint32_t weights;  // byte offset from the row's first weight
  uint32_t dim;
  float* out;  // of the block's first sample
  size_t stride;
};

template <size_t kDim>
ELASTICCTR_INLINE void CopyRows(const std::byte* const* rows, size_t count, const Piece& piece) {
  const size_t bytes = (kDim == 0 ? piece.dim : kDim) * sizeof(float);
  float* out = piece.out;
  for (size_t i = 0; i < count; ++i, out += piece.stride) std::memcpy(out, rows[i] + piece.weights, bytes);
}

ELASTICCTR_CLONES void Copy(const std::byte* const* rows, size_t count, const Piece& piece) {
  switch (piece.dim) {
    case 1: return CopyRows<1>(rows, count, piece);
    case 4: return CopyRows<4>(rows, count, piece);
    case 8: return CopyRows<8>(rows, count, piece);
    case 9: return CopyRows<9>(rows, count, piece);
    case 10: return CopyRows<10>(rows, count, piece);
    case 16: return CopyRows<16>(rows, count, piece);
    case 32: return CopyRows<32>(rows, count, piece);
    default: return CopyRows<0>(rows, count, piece);
  }
}

// Values of each bag summed in order, then scaled for the mean.
template <bool kIsFound>
ELASTICCTR_INLINE void PoolBags(const Source<kIsFound>& source, size_t first_bag, size_t count, bool is_mean,
                                const Piece& piece) {
  const uint32_t* starts = source.lookup.bag_starts();
  const uint32_t last = starts[first_bag + count];
  constexpr uint32_t kAhead = 8;
  float* __restrict out = piece.out;
  for (size_t i = 0; i < count; ++i, out += piece.stride) {
    const uint32_t begin = starts[first_bag + i], end = starts[first_bag + i + 1];
    std::memset(out, 0, piece.dim * sizeof(float));
    for (uint32_t k = begin; k < end; ++k) {
      if (k + kAhead < last) source.Fetch(k + kAhead);
      const auto* __restrict weights = reinterpret_cast<const float*>(source.Weights(k) + piece.weights);
      for (uint32_t j = 0; j < piece.dim; ++j) out[j] += weights[j];
    }
    if (is_mean && end > begin + 1) {
      const float share = 1.0f / static_cast<float>(end - begin);
      for (uint32_t j = 0; j < piece.dim; ++j) out[j] *= share;
    }
  }
}

[[maybe_unused]] ELASTICCTR_CLONES void Pool(const Source<true>& source, size_t first_bag, size_t count, bool is_mean,
                                             const Piece& piece) {
  PoolBags(source, first_bag, count, is_mean, piece);
}
[[maybe_unused]] ELASTICCTR_CLONES void Pool(const Source<false>& source, size_t first_bag, size_t count, bool is_mean,
                                             const Piece& piece) {
  PoolBags(source, first_bag, count, is_mean, piece);
}

// One sample of a sequence: up to `length` values side by side, zeros after them.
template <bool kIsFound>
void CopySequence(const Source<kIsFound>& source, uint32_t begin, uint32_t end, const SlotTarget& slot,
                  const Piece& piece) {
  if (end - begin > slot.length) {
    if (slot.pooling == PoolingKind::kFirst) {
      end = begin + slot.length;
    } else {
      begin = end - slot.length;
    }
  }
  float* out = piece.out;
  const size_t bytes = piece.dim * sizeof(float);
  for (uint32_t k = begin; k < end; ++k, out += piece.stride)
    std::memcpy(out, source.Weights(k) + piece.weights, bytes);
  for (uint32_t k = end - begin; k < slot.length; ++k, out += piece.stride) std::memset(out, 0, bytes);
}

template <bool kIsFound>
void PullSequence(const Source<kIsFound>& source, const SlotTarget& slot, size_t first_bag, size_t count, Piece piece,
                  size_t sample_stride) {
  const Lookup& lookup = source.lookup;
  for (size_t bag = first_bag; bag < first_bag + count; ++bag, piece.out += sample_stride) {
    const auto begin = lookup.is_single_valued() ? static_cast<uint32_t>(bag) : lookup.bag_starts()[bag];
    const auto end = lookup.is_single_valued() ? static_cast<uint32_t>(bag) + 1 : lookup.bag_starts()[bag + 1];
    CopySequence(source, begin, end, slot, piece);
  }
}

// Samples [begin, end) of all slots.
template <bool kIsFound>
void PullBlock(const Source<kIsFound>& source, std::span<const SegmentLayout> segments, const Layout& layout,
               const std::vector<Target>& targets, size_t begin, size_t end) {
  const std::byte* fetched[2][kBlock];
  const size_t samples = source.lookup.samples();
  const size_t count = end - begin;
  const bool is_single = source.lookup.is_single_valued();
  const auto fetch = [&](size_t slot) {
    for (size_t i = 0; i < count; ++i) fetched[slot % 2][i] = source.Fetch(slot * samples + begin + i);
  };
  if (is_single) fetch(0);
  for (size_t s = 0; s < layout.slots().size(); ++s) {
    if (is_single && s + 1 < layout.slots().size()) fetch(s + 1);
    const SlotTarget& slot = layout.slots()[s];
    const Target& target = targets[slot.target];
    for (size_t k = 0; k < segments.size(); ++k) {
      if (slot.columns[k] < 0) continue;
      const SegmentLayout& segment = segments[k];
      Piece piece{segment.column * static_cast<uint32_t>(sizeof(float)), segment.dim,
                  target.data + begin * target.sample_stride + slot.columns[k], target.sample_stride};
      if (IsSequence(slot.pooling)) {
        piece.stride = target.value_stride;
        PullSequence(source, slot, s * samples + begin, count, piece, target.sample_stride);
      } else if (is_single) {
        Copy(fetched[s % 2], count, piece);
      } else {
        Pool(source, s * samples + begin, count, slot.pooling == PoolingKind::kMean, piece);
      }
    }
  }
}

template <bool kIsFound>
void PullAll(const Source<kIsFound>& source, const std::vector<SegmentLayout>& segments, const Layout& layout,
             const std::vector<Target>& targets) {
  const size_t samples = source.lookup.samples();
  ThreadPool::Default().Run((samples + kBlock - 1) / kBlock, [&](size_t block) {
    const size_t begin = block * kBlock;
    PullBlock(source, segments, layout, targets, begin, std::min(begin + kBlock, samples));
  });
}

}  // namespace
}  // namespace elasticctr
