#include "dense/adam.h"

#include <algorithm>
#include <cmath>

#include "dense/kernels/kernel_sets.h"
#include "util/cpu.h"
#include "util/flush_denormals.h"
#include "util/thread_pool.h"

namespace elasticctr::dense {
namespace {

constexpr size_t kSpanSize = 16384;

AdamFunction BestFunction() {
#if defined(__x86_64__)
  if (Cpu().avx512) return AdamAvx512;
  if (Cpu().avx2) return AdamAvx2;
#endif
  return AdamPortable;
}

}  // namespace

void AdamStep(const AdamSettings& settings, const std::vector<AdamTensor>& tensors) {
  static const AdamFunction function = BestFunction();
  std::vector<AdamSpan> spans;
  for (const AdamTensor& tensor : tensors) {
    const double step = *tensor.step += 1.0f;
    AdamSpan span;
    span.one_minus_beta1 = static_cast<float>(1 - settings.beta1);
    span.beta2 = static_cast<float>(settings.beta2);
    span.one_minus_beta2 = static_cast<float>(1 - settings.beta2);
    span.epsilon = static_cast<float>(settings.epsilon);
    span.weight_decay = static_cast<float>(settings.weight_decay);
    span.step_size = static_cast<float>(settings.learning_rate / (1 - std::pow(settings.beta1, step)));
    span.root_correction = static_cast<float>(std::sqrt(1 - std::pow(settings.beta2, step)));
    for (size_t first = 0; first < tensor.size; first += kSpanSize) {
      span.weights = tensor.weights + first;
      span.gradient = tensor.gradient + first;
      span.mean = tensor.mean + first;
      span.square = tensor.square + first;
      span.size = std::min(kSpanSize, tensor.size - first);
      spans.push_back(span);
    }
  }
  ThreadPool::Default().Run(spans.size(), [&](size_t i) {
    [[maybe_unused]] const FlushDenormals scope;
    function(spans[i]);
  });
}

}  // namespace elasticctr::dense
