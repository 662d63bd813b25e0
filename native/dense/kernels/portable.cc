// fp32 on any CPU, through the compiler's vector extension (SSE2 or NEON sized).
#include <cmath>

#define DENSE_TARGET
#include "dense/kernels/adam_kernel.h"
#include "dense/kernels/float32_norm.h"
#include "dense/kernels/kernel_sets.h"

namespace elasticctr::dense {
namespace {

struct Vector {
  using Word = float;
  using Register = float __attribute__((vector_size(16)));
  static constexpr size_t kLanes = 4;
  static constexpr int kVectors = 2;
  static constexpr int kRows = 4;
  static constexpr int kGradientRows = 4;
  static constexpr size_t kDepthWords = kPanel;

  static Register Zero() { return Register{}; }
  static Register Load(const float* p) {
    Register v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static Register Broadcast(const float* p) { return Register{*p, *p, *p, *p}; }
  static Register MultiplyAdd(Register a, Register b, Register sum) { return sum + a * b; }
  static void Store(float* p, Register v) { std::memcpy(p, &v, sizeof v); }
  static Register Add(Register a, Register b) { return a + b; }
  static Register Subtract(Register a, Register b) { return a - b; }
  static Register Multiply(Register a, Register b) { return a * b; }
  static Register Divide(Register a, Register b) { return a / b; }
  static Register Positive(Register a) { return Zero() > a ? Zero() : a; }
  static Register Gate(Register by, Register a) { return by <= Zero() ? Zero() : a; }
  static Register Root(Register a) {
    for (size_t i = 0; i < kLanes; ++i) a[i] = std::sqrt(a[i]);
    return a;
  }
};

}  // namespace

const Kernels kFloat32Portable = {
    .name = "fp32_portable",
    .precision = Precision::kFloat32,
    .element_bytes = 4,
    .row_multiple = 1,
    .begin = nullptr,
    .end = nullptr,
    .pack_forward = PackForwardFloat32,
    .pack_backward = PackBackwardFloat32,
    .load = LoadFloat32<Vector>,
    .multiply = MultiplyFloat32<Vector>,
    .weight_gradient = WeightGradientFloat32<Vector>,
    .moments = MomentsFloat32<Vector>,
    .finish = FinishPanelsFloat32<Vector>,
    .norm_sums = NormSumsFloat32<Vector>,
    .norm_gradient = NormGradientFloat32<Vector>,
};

void AdamPortable(const AdamSpan& span) { AdamOver<Vector>(span); }

}  // namespace elasticctr::dense
