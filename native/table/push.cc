// Table::Push: the gradients of each feasign summed over its occurrences, then one optimizer step per row.

#include <algorithm>
#include <cstring>
#include <mutex>

#include "table/buffer.h"
#include "table/push_kernels.h"
#include "table/table.h"
#include "util/thread_pool.h"

namespace elasticctr {
namespace {

constexpr size_t kCacheLine = 64;

struct Block {
  Sums sums[kMaxBlock];
  uint64_t touched[kMaxBlock];
};

}  // namespace

void Table::Push(const Lookup& lookup, const Layout& layout, const std::vector<Target>& gradients,
                 const PushSamples& samples) {
  std::unique_lock writing(mutex_);
  CheckFound(lookup, layout);
  layout.CheckTargets(gradients, lookup.samples());
  CheckNow(samples.now);
  BeginStep(samples.rate_scale);
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
    StepRows({count, lookup.rows() + begin, sums, work.is_plain ? nullptr : block.touched, &block.sums[0].show,
              &block.sums[0].click, sizeof(Sums) / sizeof(float), samples.rate_scale, samples.gradient_scale, seen});
  });
}

}  // namespace elasticctr
