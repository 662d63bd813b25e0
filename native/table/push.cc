// Table::Push: the gradients of each feasign summed over its occurrences, then one optimizer step per row.

#include <algorithm>
#include <cstring>
#include <mutex>

#include "table/buffer.h"
#include "table/push_kernels.h"
#include "table/table.h"
#include "util/status.h"
#include "util/thread_pool.h"

namespace elasticctr {
namespace {

constexpr size_t kCacheLine = 64;

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
  const size_t width = layout_.weights_dim();
  const Work work = MakeWork(lookup, layout, layout_.segments(), width, gradients, samples);
  is_touched_ = marks_.is_on();
  const uint32_t seen = samples.now | (marks_.is_on() ? RowLayout::kTouched : 0);
  const size_t block_size = BlockSize(width);
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
