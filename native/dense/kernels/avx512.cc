// fp32 with AVX-512: tiles of 14 rows by 32 columns fill the 32 registers.
#if defined(__x86_64__)
#include <immintrin.h>

#define DENSE_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma,prefer-vector-width=512")))
#include "dense/kernels/adam_kernel.h"
#include "dense/kernels/avx512_transpose.h"
#include "dense/kernels/float32_norm.h"
#include "dense/kernels/kernel_sets.h"

namespace elasticctr::dense {
namespace {

struct Vector {
  using Word = float;
  using Register = __m512;
  static constexpr size_t kLanes = 16;
  static constexpr int kVectors = 2;
  static constexpr int kRows = 14;
  static constexpr int kGradientRows = 8;
  static constexpr size_t kDepthWords = kPanel;

  DENSE_INLINE static Register Zero() { return _mm512_setzero_ps(); }
  DENSE_INLINE static Register Load(const float* p) { return _mm512_loadu_ps(p); }
  DENSE_INLINE static Register Broadcast(const float* p) { return _mm512_set1_ps(*p); }
  DENSE_INLINE static Register MultiplyAdd(Register a, Register b, Register sum) { return _mm512_fmadd_ps(a, b, sum); }
  DENSE_INLINE static void Store(float* p, Register v) { _mm512_storeu_ps(p, v); }
  DENSE_INLINE static Register Add(Register a, Register b) { return _mm512_add_ps(a, b); }
  DENSE_INLINE static Register Subtract(Register a, Register b) { return _mm512_sub_ps(a, b); }
  DENSE_INLINE static Register Multiply(Register a, Register b) { return _mm512_mul_ps(a, b); }
  DENSE_INLINE static Register Divide(Register a, Register b) { return _mm512_div_ps(a, b); }
  DENSE_INLINE static Register Positive(Register a) { return _mm512_max_ps(Zero(), a); }
  DENSE_INLINE static Register Gate(Register by, Register a) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(by, Zero(), _CMP_NLE_UQ), a);
  }
  DENSE_INLINE static Register Root(Register a) { return _mm512_sqrt_ps(a); }
};

DENSE_TARGET void PackForward(const float* weights, size_t out, size_t in, size_t first, size_t last, char* packed) {
  auto* to = reinterpret_cast<float*>(packed) + first * in * kPanel;
  for (size_t panel = first; panel < last; ++panel, to += in * kPanel) {
    for (size_t half = 0; half < kPanel; half += 16) {
      const size_t n = panel * kPanel + half;
      for (size_t k = 0; k < in; k += 16) {
        const size_t depth = std::min<size_t>(16, in - k);
        const auto mask = static_cast<__mmask16>((1u << depth) - 1);
        __m512i word[16];
#pragma GCC unroll 16
        for (size_t i = 0; i < 16; ++i) {
          word[i] = n + i < out ? _mm512_maskz_loadu_epi32(mask, weights + (n + i) * in + k) : _mm512_setzero_si512();
        }
        Transpose16(word);
        for (size_t i = 0; i < depth; ++i) _mm512_storeu_si512(to + (k + i) * kPanel + half, word[i]);
      }
    }
  }
}

}  // namespace

const Kernels kFloat32Avx512 = {
    .name = "fp32_avx512",
    .precision = Precision::kFloat32,
    .element_bytes = 4,
    .row_multiple = 1,
    .begin = nullptr,
    .end = nullptr,
    .pack_forward = PackForward,
    .pack_backward = PackBackwardFloat32,
    .load = LoadFloat32<Vector>,
    .multiply = MultiplyFloat32<Vector>,
    .weight_gradient = WeightGradientFloat32<Vector>,
    .moments = MomentsFloat32<Vector>,
    .finish = FinishPanelsFloat32<Vector>,
    .norm_sums = NormSumsFloat32<Vector>,
    .norm_gradient = NormGradientFloat32<Vector>,
};

DENSE_TARGET void AdamAvx512(const AdamSpan& span) { AdamOver<Vector>(span); }

}  // namespace elasticctr::dense
#endif
