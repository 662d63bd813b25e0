// fp32 with AVX2 and FMA: tiles of 6 rows by 16 columns.
#if defined(__x86_64__)
#include <immintrin.h>

#define DENSE_TARGET __attribute__((target("avx2,fma")))
#include "dense/kernels/adam_kernel.h"
#include "dense/kernels/float32_norm.h"
#include "dense/kernels/kernel_sets.h"

namespace elasticctr::dense {
namespace {

struct Vector {
  using Word = float;
  using Register = __m256;
  static constexpr size_t kLanes = 8;
  static constexpr int kVectors = 2;
  static constexpr int kRows = 6;
  static constexpr int kGradientRows = 4;
  static constexpr size_t kDepthWords = kPanel;

  DENSE_INLINE static Register Zero() { return _mm256_setzero_ps(); }
  DENSE_INLINE static Register Load(const float* p) { return _mm256_loadu_ps(p); }
  DENSE_INLINE static Register Broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  DENSE_INLINE static Register MultiplyAdd(Register a, Register b, Register sum) { return _mm256_fmadd_ps(a, b, sum); }
  DENSE_INLINE static void Store(float* p, Register v) { _mm256_storeu_ps(p, v); }
  DENSE_INLINE static Register Add(Register a, Register b) { return _mm256_add_ps(a, b); }
  DENSE_INLINE static Register Subtract(Register a, Register b) { return _mm256_sub_ps(a, b); }
  DENSE_INLINE static Register Multiply(Register a, Register b) { return _mm256_mul_ps(a, b); }
  DENSE_INLINE static Register Divide(Register a, Register b) { return _mm256_div_ps(a, b); }
  DENSE_INLINE static Register Positive(Register a) { return _mm256_max_ps(Zero(), a); }
  DENSE_INLINE static Register Gate(Register by, Register a) {
    return _mm256_and_ps(_mm256_cmp_ps(by, Zero(), _CMP_NLE_UQ), a);
  }
  DENSE_INLINE static Register Root(Register a) { return _mm256_sqrt_ps(a); }
};

}  // namespace

const Kernels kFloat32Avx2 = {
    .name = "fp32_avx2",
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

DENSE_TARGET void AdamAvx2(const AdamSpan& span) { AdamOver<Vector>(span); }

}  // namespace elasticctr::dense
#endif
