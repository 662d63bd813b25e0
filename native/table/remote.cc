#include "table/remote.h"

#include <atomic>
#include <bit>
#include <string>

#include "table/pull_kernels.h"
#include "table/push_kernels.h"
#include "util/status.h"
#include "util/thread_pool.h"

namespace elasticctr {
namespace {

// The segments of a row that consists of weights only.
std::vector<SegmentLayout> BareSegments(const Layout& layout, size_t width) {
  std::vector<SegmentLayout> segments;
  uint32_t column = 0;
  for (const uint32_t dim : layout.dims()) {
    segments.push_back({dim, static_cast<uint32_t>(column * sizeof(float)), 0, column});
    column += dim;
  }
  if (column != width) {
    throw Error(Code::kFailedPrecondition, "the layout is for rows of " + std::to_string(column) +
                                               " weights, these have " + std::to_string(width));
  }
  return segments;
}

void CheckSlots(const Lookup& lookup, const Layout& layout) {
  if (layout.slots().size() != lookup.slots()) {
    throw Error(Code::kFailedPrecondition, "a lookup of " + std::to_string(lookup.slots()) + " slots for a layout of " +
                                               std::to_string(layout.slots().size()));
  }
}

ELASTICCTR_CLONES bool HasOnlyFinite(const float* values, size_t count) {
  constexpr uint32_t kLargest = std::bit_cast<uint32_t>(1e18f);
  uint32_t is_beyond = 0;
  for (size_t i = 0; i < count; ++i) {
    is_beyond |= static_cast<uint32_t>((std::bit_cast<uint32_t>(values[i]) & 0x7FFFFFFFu) > kLargest);
  }
  return is_beyond == 0;
}

}  // namespace

bool AllFinite(const float* values, size_t count) { return HasOnlyFinite(values, count); }

void PoolRows(const Lookup& lookup, const Layout& layout, const float* rows, size_t width,
              const std::vector<Target>& targets, const uint32_t* places) {
  CheckSlots(lookup, layout);
  layout.CheckTargets(targets, lookup.samples());
  const auto segments = BareSegments(layout, width);
  if (layout.slots().empty()) return;
  const size_t stride = width * sizeof(float);
  const auto* first = reinterpret_cast<const std::byte*>(rows);
  const uint32_t lines = PrefetchLines(stride, width);
  if (places == nullptr) {
    PullAll(Source<false>{first, stride, lines, lookup, nullptr}, segments, layout, targets);
  } else {
    PullAll(Source<true>{first, stride, lines, lookup, places}, segments, layout, targets);
  }
}

void SumGradients(const Lookup& lookup, const Layout& layout, size_t width, const std::vector<Target>& gradients,
                  const PushSamples& samples, SummedGradients* out) {
  CheckSlots(lookup, layout);
  layout.CheckTargets(gradients, lookup.samples());
  const auto segments = BareSegments(layout, width);
  const size_t distinct = lookup.distinct();
  const Work work = MakeWork(lookup, layout, segments, width, gradients, samples);
  float* const sums = out->gradients.Reserve(distinct * width);
  float* const shows = out->shows.Reserve(distinct);
  float* const clicks = out->clicks.Reserve(distinct);
  uint64_t* const masks = work.is_plain ? nullptr : out->masks.Reserve(distinct);
  const uint64_t every = ~uint64_t{0} >> (64 - std::clamp<size_t>(segments.size(), 1, 64));
  std::atomic<bool> is_finite{true}, has_masks{false};
  const size_t block_size = BlockSize(width);
  ThreadPool::Default().Run((distinct + block_size - 1) / block_size, [&](size_t number) {
    const size_t begin = number * block_size;
    const size_t count = std::min(block_size, distinct - begin);
    float* const block = sums + begin * width;
    Sums counted[kMaxBlock] = {};
    if (work.is_plain) {
      SumPlainBlock(work, lookup.starts() + begin, count, block, counted);
    } else {
      SumAny(work, lookup.starts() + begin, count, block, counted, masks + begin);
      for (size_t i = begin; i < begin + count; ++i) {
        if (masks[i] != every) has_masks.store(true, std::memory_order_relaxed);
      }
    }
    if (samples.gradient_scale != 1.0f) {
      for (size_t i = 0; i < count * width; ++i) block[i] *= samples.gradient_scale;
    }
    for (size_t i = 0; i < count; ++i) {
      shows[begin + i] = counted[i].show;
      clicks[begin + i] = counted[i].click;
    }
    if (!AllFinite(block, count * width) || !AllFinite(shows + begin, count) || !AllFinite(clicks + begin, count)) {
      is_finite.store(false, std::memory_order_relaxed);
    }
  });
  out->has_masks = has_masks.load();
  out->is_finite = is_finite.load();
}

}  // namespace elasticctr
