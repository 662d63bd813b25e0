// Sums the gradients of each distinct feasign over its occurrences: Table::Push and SumGradients call this per block of
// feasigns. A feasign belongs to one block and its sum has one order, so results do not depend on the number of
// threads.
// Included by those two only.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "table/layout.h"
#include "table/lookup.h"
#include "table/optimizer/rows.h"
#include "table/row.h"
#include "table/step_block.h"
#include "table/table.h"
#include "util/target.h"

namespace elasticctr {
namespace {

constexpr size_t kMaxBlock = kMaxStepRows;        // feasigns
constexpr size_t kBlockFloats = size_t{1} << 15;  // of summed gradients, to stay in the second-level cache
constexpr size_t kAhead = 16;                     // gradients to prefetch

// Where a slot's gradient is, per segment.
struct SlotGradient {
  const float* data;  // of the array, column not added
  size_t sample_stride;
  size_t value_stride;
  const int32_t* columns;
  uint32_t length;
  PoolingKind pooling;
};

// Of one push.
struct Work {
  const Lookup& lookup;
  std::span<const SegmentLayout> segments;
  size_t width;  // weights of a row
  std::vector<SlotGradient> slots;
  const PushSamples& samples;
  bool is_plain;     // sums and means of slots that have every segment
  uint64_t divisor;  // bag / samples == bag * divisor >> 64
};

inline Work MakeWork(const Lookup& lookup, const Layout& layout, std::span<const SegmentLayout> segments, size_t width,
                     const std::vector<Target>& gradients, const PushSamples& samples) {
  Work work{lookup,
            segments,
            width,
            {},
            samples,
            layout.is_complete() && !layout.has_sequences(),
            lookup.samples() == 0 ? 0 : ~uint64_t{0} / lookup.samples() + 1};
  for (const SlotTarget& slot : layout.slots()) {
    const Target& target = gradients[slot.target];
    work.slots.push_back(
        {target.data, target.sample_stride, target.value_stride, slot.columns.data(), slot.length, slot.pooling});
  }
  return work;
}

inline size_t BlockSize(size_t width) { return std::clamp<size_t>(kBlockFloats / width, 1, kMaxBlock); }

// An occurrence's bag and what follows from it.
struct Place {
  uint32_t bag;
  uint32_t slot;
  uint32_t sample;
};

ELASTICCTR_INLINE Place Locate(const Work& work, uint32_t occurrence) {
  const uint32_t bag = work.lookup.is_single_valued() ? occurrence : work.lookup.bags()[occurrence];
  const auto samples = static_cast<uint32_t>(work.lookup.samples());
  const auto slot =
      samples == 1 ? bag : static_cast<uint32_t>((static_cast<unsigned __int128>(work.divisor) * bag) >> 64);
  return {bag, slot, bag - slot * samples};
}

// The gradient of one occurrence, null if its value was cut from a sequence, and the factor to multiply it by.
struct Part {
  const float* data;
  float share;
  uint32_t sample;
  const int32_t* columns;
};

ELASTICCTR_INLINE Part PartOf(const Work& work, uint32_t occurrence) {
  const Place place = Locate(work, occurrence);
  const SlotGradient& slot = work.slots[place.slot];
  Part part{slot.data + place.sample * slot.sample_stride, 1.0f, place.sample, slot.columns};
  if (slot.pooling == PoolingKind::kSum) return part;
  const bool is_single = work.lookup.is_single_valued();
  const uint32_t begin = is_single ? occurrence : work.lookup.bag_starts()[place.bag];
  const uint32_t count = is_single ? 1 : work.lookup.bag_starts()[place.bag + 1] - begin;
  if (slot.pooling == PoolingKind::kMean) {
    part.share = 1.0f / static_cast<float>(count);
    return part;
  }
  const uint32_t skipped = slot.pooling == PoolingKind::kLast && count > slot.length ? count - slot.length : 0;
  const uint32_t position = occurrence - begin;
  if (position < skipped || position - skipped >= slot.length) {
    part.data = nullptr;
  } else {
    part.data += (position - skipped) * slot.value_stride;
  }
  return part;
}

// Counters of one feasign in this batch.
struct Sums {
  float show = 0.0f;
  float click = 0.0f;
};

ELASTICCTR_INLINE void AddSample(const PushSamples& samples, uint32_t sample, Sums* sums) {
  sums->show += samples.shows == nullptr ? 1.0f : samples.shows[sample * samples.show_stride];
  if (samples.clicks != nullptr) sums->click += samples.clicks[sample * samples.click_stride];
}

// Pooled slots with every segment in one run of columns: the only branch per occurrence is the scale of a mean.
template <size_t kDim>
ELASTICCTR_INLINE void SumPlain(const Work& work, const uint32_t* order, const uint32_t* starts, size_t count,
                                float* __restrict gradients, Sums* sums) {
  const auto segments = work.segments;
  const size_t width = work.width;
  const uint32_t end = starts[count];
  Part parts[kAhead];
  const auto fetch = [&](uint32_t k) ELASTICCTR_FORMULA {
    Part& part = parts[k % kAhead];
    part = PartOf(work, order[k]);
    const float* first = part.data + part.columns[0];
    __builtin_prefetch(first);
    __builtin_prefetch(first + segments[0].dim - 1);
    if (segments.size() > 1) __builtin_prefetch(part.data + part.columns[1]);
  };
  uint32_t next = starts[0];
  for (; next < end && next < starts[0] + kAhead - 1; ++next) fetch(next);
  for (size_t i = 0; i < count; ++i, gradients += width) {
    std::memset(gradients, 0, width * sizeof(float));
    for (uint32_t k = starts[i]; k < starts[i + 1]; ++k) {
      if (next < end) fetch(next++);
      const Part& part = parts[k % kAhead];
      AddSample(work.samples, part.sample, &sums[i]);
      for (size_t s = 0; s < segments.size(); ++s) {
        const float* __restrict g = part.data + part.columns[s];
        float* __restrict sum = gradients + segments[s].column;
        const size_t dim = kDim == 0 ? segments[s].dim : kDim;
        const float share = part.share;
        ForWeights(dim, [=](size_t j) ELASTICCTR_FORMULA { sum[j] += share * g[j]; });
      }
    }
  }
}

ELASTICCTR_CLONES void SumPlainBlock(const Work& work, const uint32_t* starts, size_t count, float* gradients,
                                     Sums* sums) {
  const uint32_t* order = work.lookup.order();
  if (work.segments.size() == 1) {
    switch (work.width) {
      case 1: return SumPlain<1>(work, order, starts, count, gradients, sums);
      case 8: return SumPlain<8>(work, order, starts, count, gradients, sums);
      case 9: return SumPlain<9>(work, order, starts, count, gradients, sums);
      case 16: return SumPlain<16>(work, order, starts, count, gradients, sums);
      default: break;
    }
  }
  SumPlain<0>(work, order, starts, count, gradients, sums);
}

// Any layout: sequences, and slots without some segment. `touched` gets a bit per segment that had a gradient.
void SumAny(const Work& work, const uint32_t* starts, size_t count, float* gradients, Sums* sums, uint64_t* touched) {
  const auto segments = work.segments;
  const size_t width = work.width;
  for (size_t i = 0; i < count; ++i, gradients += width) {
    std::memset(gradients, 0, width * sizeof(float));
    touched[i] = 0;
    for (uint32_t k = starts[i]; k < starts[i + 1]; ++k) {
      const Part part = PartOf(work, work.lookup.order()[k]);
      AddSample(work.samples, part.sample, &sums[i]);
      if (part.data == nullptr) continue;
      for (size_t s = 0; s < segments.size(); ++s) {
        if (part.columns[s] < 0) continue;
        touched[i] |= uint64_t{1} << std::min<size_t>(s, 63);
        const float* g = part.data + part.columns[s];
        float* sum = gradients + segments[s].column;
        for (size_t j = 0; j < segments[s].dim; ++j) sum[j] += part.share * g[j];
      }
    }
  }
}

}  // namespace
}  // namespace elasticctr
