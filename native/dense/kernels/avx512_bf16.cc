// bf16 with AVX512_BF16: the fp32 tiles, each multiply-add a dot product of two.
#if defined(__x86_64__)
#include <immintrin.h>

#define DENSE_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma,prefer-vector-width=512")))
#include "dense/kernels/bfloat16_norm.h"
#include "dense/kernels/kernel_sets.h"

namespace elasticctr::dense {
namespace {

constexpr size_t kRowMultiple = 2;

struct Vector {
  using Word = uint32_t;
  using Register = __m512;
  static constexpr size_t kLanes = 16;
  static constexpr int kVectors = 2;
  static constexpr int kRows = 14;
  static constexpr int kGradientRows = 8;
  static constexpr size_t kDepthWords = kPanel / 2;

  DENSE_INLINE static Register Zero() { return _mm512_setzero_ps(); }
  DENSE_INLINE static Register Load(const Word* p) { return _mm512_castsi512_ps(_mm512_loadu_si512(p)); }
  DENSE_INLINE static Register Broadcast(const Word* p) {
    return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(*p)));
  }
  DENSE_INLINE static Register MultiplyAdd(Register a, Register b, Register sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
  DENSE_INLINE static void Store(float* p, Register v) { _mm512_storeu_ps(p, v); }
};

DENSE_TARGET void Multiply(const Block& a, size_t depth, const char* packed, size_t columns, const Epilogue& epilogue) {
  MultiplyPanels<Vector, 2, FinishBfloat16>(a, (depth + 1) / 2, PackedWords(depth), packed, columns, epilogue);
}

DENSE_TARGET void WeightGradient(const Block& dy, const Block& x, size_t in, size_t first, size_t last, bool add,
                                 float* weights, float* bias) {
  GradientPanels<Vector>(dy, x, (dy.count + 1) / 2, in, first, last, add, weights);
  BiasGradientBfloat16(dy, first, last, add, bias);
}

}  // namespace

const Kernels kBfloat16Avx512 = {
    .name = "bf16_avx512",
    .precision = Precision::kBfloat16,
    .element_bytes = 2,
    .row_multiple = kRowMultiple,
    .begin = nullptr,
    .end = nullptr,
    .pack_forward = PackForwardBfloat16,
    .pack_backward = PackBackwardBfloat16,
    .load = LoadBfloat16<kRowMultiple>,
    .multiply = Multiply,
    .weight_gradient = WeightGradient,
    .moments = MomentsBfloat16,
    .finish = FinishPanelsBfloat16<kRowMultiple>,
    .norm_sums = NormSumsBfloat16,
    .norm_gradient = NormGradientBfloat16<kRowMultiple>,
};

}  // namespace elasticctr::dense
#endif
