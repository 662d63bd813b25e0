// bf16 with AMX: two by two tiles of 16 x 16, so that each loaded tile is used twice.
#if defined(__x86_64__)
#include <immintrin.h>

#define DENSE_TARGET                                                                              \
  __attribute__((                                                                                 \
      target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma,amx-tile,amx-bf16,prefer-vector-" \
             "width=512")))
#include "dense/buffer.h"
#include "dense/kernels/amx_tiles.h"
#include "dense/kernels/bfloat16_norm.h"
#include "dense/kernels/kernel_sets.h"

namespace elasticctr::dense {
namespace {

constexpr size_t kTileRows = 16;
constexpr size_t kTileBytes = 1024;
constexpr size_t kRowMultiple = 2 * kTileRows;
constexpr size_t kStepRows = 2 * kTileRows;   // rows of the batch one tile product of a weight gradient sums over
constexpr size_t kChunkRows = kGradientRows;  // rows summed in tiles before they are added to memory

DENSE_TARGET void Begin() { LoadTileConfig(); }
DENSE_TARGET void End() { _tile_release(); }

// c[32, 32] = sum over `steps` of a left [32 rows] and a right [32 columns] pair of tiles. The second tile of the left
// pair is `left_second` bytes after the first; of the right pair 64 bytes, in rows of 128.
DENSE_INLINE void Product(const char* left, size_t left_second, size_t left_step, const char* right, size_t right_step,
                          size_t steps, bool is_wide, float* c) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  if (is_wide) {
    for (size_t s = 0; s < steps; ++s, left += left_step, right += right_step) {
      _tile_loadd(6, right, kPairBytes);
      _tile_loadd(4, left, 64);
      _tile_loadd(5, left + left_second, 64);
      _tile_loadd(7, right + 64, kPairBytes);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
    }
  } else {
    for (size_t s = 0; s < steps; ++s, left += left_step, right += right_step) {
      _tile_loadd(6, right, kPairBytes);
      _tile_loadd(4, left, 64);
      _tile_loadd(5, left + left_second, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(2, 5, 6);
    }
  }
  constexpr size_t kStride = kPanel * sizeof(float);
  _tile_stored(0, c, kStride);
  _tile_stored(1, c + kTileRows, kStride);
  _tile_stored(2, c + kTileRows * kPanel, kStride);
  _tile_stored(3, c + kTileRows * kPanel + kTileRows, kStride);
}

DENSE_TARGET void Multiply(const Block& a, size_t depth, const char* packed, size_t columns, const Epilogue& epilogue) {
  alignas(64) float c[kPanel * kPanel];
  const size_t steps = Panels(depth);
  for (size_t panel = 0; panel < Panels(columns); ++panel) {
    const char* right = packed + panel * PackedWords(depth) * 4;
    const bool is_wide = columns - panel * kPanel > kTileRows;
    for (size_t row = 0; row < a.count; row += kRowMultiple) {
      Product(a.rows + row * kRowBytes, kTileBytes, a.rows_stride, right, kTileRows * kPairBytes, steps, is_wide, c);
      FinishBfloat16(c, kRowMultiple, row, panel, columns, epilogue);
    }
  }
}

// dy of `steps` times 32 rows and columns [first, last), transposed: for every 16 columns, `steps` tiles of 16 columns
// by 32 rows.
DENSE_TARGET void TransposeChunk(const Block& dy, size_t row, size_t steps, size_t first, size_t last, char* to) {
  for (size_t n = first; n < last; n += kTileRows) {
    const char* from = dy.pairs + n / kPanel * dy.pairs_stride + row / 2 * kPairBytes + n % kPanel * 4;
    for (size_t s = 0; s < steps; ++s, to += kTileBytes) {
      __m512i word[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i, from += kPairBytes) word[i] = _mm512_loadu_si512(from);
      Transpose16(word);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) _mm512_storeu_si512(to + i * 64, word[i]);
    }
  }
}

DENSE_TARGET void WeightGradient(const Block& dy, const Block& x, size_t in, size_t first, size_t last, bool add,
                                 float* weights, float* bias) {
  thread_local Buffer transposed;
  const size_t padded = RoundUp(last, kPanel);  // columns past the width exist and are zero
  transposed.Reserve((padded - first) * kChunkRows * 2);
  alignas(64) float c[kPanel * kPanel];
  for (size_t row = 0; row < dy.count; row += kChunkRows) {
    const size_t steps = (std::min(kChunkRows, dy.count - row) + kStepRows - 1) / kStepRows;
    TransposeChunk(dy, row, steps, first, padded, transposed.data());
    for (size_t panel = 0; panel < Panels(in); ++panel) {
      const char* right = x.pairs + panel * x.pairs_stride + row / 2 * kPairBytes;
      const size_t width = std::min(kPanel, in - panel * kPanel);
      for (size_t n = first; n < last; n += kPanel) {
        const char* left = transposed.data() + (n - first) / kTileRows * steps * kTileBytes;
        Product(left, steps * kTileBytes, kTileBytes, right, kTileRows * kPairBytes, steps, width > kTileRows, c);
        StoreGradient(c, std::min(kPanel, last - n), width, add || row > 0, weights + n * in + panel * kPanel, in);
      }
    }
  }
  BiasGradientBfloat16(dy, first, last, add, bias);
}

}  // namespace

const Kernels kBfloat16Amx = {
    .name = "bf16_amx",
    .precision = Precision::kBfloat16,
    .element_bytes = 2,
    .row_multiple = kRowMultiple,
    .begin = Begin,
    .end = End,
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
