// Table::Push: the gradients of each feasign summed over its occurrences, then one optimizer step per row. Work is
// cut into blocks of feasigns; a feasign belongs to one block and its sum has one order, so the number of threads
// changes nothing.

#include <algorithm>
#include <cstring>
#include <mutex>

#include "table/buffer.h"
#include "table/optimizer/rows.h"
#include "table/table.h"
#include "util/status.h"
#include "util/target.h"
#include "util/thread_pool.h"

namespace elasticctr {
namespace {

constexpr size_t kMaxBlock = 64;                  // feasigns
constexpr size_t kBlockFloats = size_t{1} << 15;  // of summed gradients, to stay in the second-level cache
constexpr size_t kAhead = 16;                     // gradients on their way from memory
constexpr size_t kCacheLine = 64;

// Where a slot's gradient is, per segment.
struct SlotGradient {
  const float* data;  // of the array, column not added
  size_t sample_stride;
  size_t value_stride;
  const int32_t* columns;
  uint32_t length;
  PoolingKind pooling;
};

struct Work {
  const Lookup& lookup;
  const RowLayout& row;
  std::vector<SlotGradient> slots;
  const PushSamples& samples;
  bool is_plain;     // sums and means of slots that have every segment
  uint64_t divisor;  // bag / samples == bag * divisor >> 64
};

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

// The gradient of one occurrence, null if its value was cut from a sequence, and what to multiply it by.
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

// Pooled slots with every segment in one run of columns: no branches per occurrence but the shares of means.
template <size_t kDim>
ELASTICCTR_INLINE void SumPlain(const Work& work, const uint32_t* order, const uint32_t* starts, size_t count,
                                float* __restrict gradients, Sums* sums) {
  const auto& segments = work.row.segments();
  const size_t width = work.row.weights_dim();
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
  if (work.row.segments().size() == 1) {
    switch (work.row.weights_dim()) {
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
  const auto& segments = work.row.segments();
  const size_t width = work.row.weights_dim();
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

// Clipping, L2 and the scale, in place. Rows not admitted never come here.
void PrepareGradients(const StepBlock& block, const OptimizerSettings& optimizer, float scale) {
  const float l2 = optimizer.kind == OptimizerKind::kFtrl ? 0.0f : optimizer.l2;
  const float clip = optimizer.gradient_clip;
  if (l2 == 0.0f && clip == 0.0f && scale == 1.0f) return;
  for (size_t i = 0; i < block.count; ++i) {
    float* g = const_cast<float*>(block.gradients[i]) + block.column;
    const float* w = RowLayout::Floats(block.rows[i], block.weights);
    for (uint32_t j = 0; j < block.dim; ++j) {
      float value = g[j] * scale;
      if (clip > 0.0f) value = std::clamp(value, -clip, clip);
      g[j] = value + l2 * w[j];
    }
  }
}

void BoundWeights(const StepBlock& block, float bound) {
  if (bound == 0.0f) return;
  for (size_t i = 0; i < block.count; ++i) {
    float* w = RowLayout::Floats(block.rows[i], block.weights);
    for (uint32_t j = 0; j < block.dim; ++j) w[j] = std::clamp(w[j], -bound, bound);
  }
}

struct Block {
  std::byte* rows[kMaxBlock];
  const float* gradients[kMaxBlock];
  Sums sums[kMaxBlock];
  uint64_t touched[kMaxBlock];
};

}  // namespace

void Table::Push(const Lookup& lookup, const Layout& layout, const std::vector<Target>& gradients,
                 const PushSamples& samples) {
  std::unique_lock writing(mutex_);
  CheckFound(lookup, layout);
  layout.CheckTargets(gradients, lookup.samples());
  if (samples.now >= RowLayout::kTouched) {
    throw Error(Code::kConfig, "table '" + settings_.name + "': a time of " + std::to_string(samples.now) +
                                   " for last-seen is too large; count days, hours or steps below 2^31");
  }
  ++steps_;
  if (lookup.distinct() == 0) return;
  Work work{lookup,
            layout_,
            {},
            samples,
            layout.is_complete() && !layout.has_sequences(),
            ~uint64_t{0} / lookup.samples() + 1};
  for (const SlotTarget& slot : layout.slots()) {
    const Target& target = gradients[slot.target];
    work.slots.push_back(
        {target.data, target.sample_stride, target.value_stride, slot.columns.data(), slot.length, slot.pooling});
  }
  is_touched_ = marks_.is_on();
  const uint32_t seen = samples.now | (marks_.is_on() ? RowLayout::kTouched : 0);
  const size_t width = layout_.weights_dim();
  const size_t block_size = std::clamp<size_t>(kBlockFloats / width, 1, kMaxBlock);
  ThreadPool::Default().Run((lookup.distinct() + block_size - 1) / block_size, [&](size_t number) {
    thread_local Buffer<float> scratch;
    float* const sums = scratch.Reserve(block_size * width);
    Block block;
    const size_t begin = number * block_size;
    const size_t count = std::min(block_size, lookup.distinct() - begin);
    for (size_t i = 0; i < count; ++i) {
      const std::byte* row = Row(lookup.rows()[begin + i]);
      for (size_t line = 0; line < std::min<size_t>(layout_.stride(), 4 * kCacheLine); line += kCacheLine) {
        __builtin_prefetch(row + line, 1);
      }
      block.sums[i] = {};
    }
    if (work.is_plain) {
      SumPlainBlock(work, lookup.starts() + begin, count, sums, block.sums);
    } else {
      SumAny(work, lookup.starts() + begin, count, sums, block.sums, block.touched);
    }
    for (size_t s = 0; s < optimizers_.size(); ++s) {
      const SegmentLayout& segment = layout_.segments()[s];
      size_t active = 0;
      for (size_t i = 0; i < count; ++i) {
        const uint32_t row = lookup.rows()[begin + i];
        const bool has_gradient = work.is_plain || (block.touched[i] >> std::min<size_t>(s, 63) & 1) != 0;
        if (row == 0 || !has_gradient) continue;
        block.rows[active] = Row(row);
        block.gradients[active++] = sums + i * width;
      }
      const StepBlock step{active,     segment.dim,     segment.weights, segment.state,     segment.column,
                           block.rows, block.gradients, steps_,          samples.rate_scale};
      PrepareGradients(step, settings_.segments[s].optimizer, samples.gradient_scale);
      optimizers_[s]->Step(step);
      BoundWeights(step, settings_.segments[s].optimizer.weight_bound);
    }
    if (!layout_.has_counters()) {
      for (size_t i = 0; marks_.is_on() && i < count; ++i) {
        if (lookup.rows()[begin + i] != 0) marks_.Stamp(lookup.rows()[begin + i]);
      }
      return;
    }
    for (size_t i = 0; i < count; ++i) {
      const uint32_t row = lookup.rows()[begin + i];
      if (row == 0) continue;
      Counters* counters = RowLayout::MutableCounters(Row(row));
      counters->show += block.sums[i].show;
      counters->click += block.sums[i].click;
      counters->last_seen = seen;
    }
  });
}

}  // namespace elasticctr
