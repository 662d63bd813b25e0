// Products of panels, written once over a vector type and compiled once per instruction set: a kernels_*.cc
// defines DENSE_TARGET (a target attribute, or nothing), includes this and fills a Kernels table.
//
// A panel is read as 32-bit words: one float in fp32, a pair of bf16 in bf16, where a multiply-add of words is a dot
// product of two. The vector type V provides
// Word, Register, kLanes, kVectors (registers across a tile), kRows (most rows of a tile),
// kGradientRows (the same for weight gradients; divides 32), kDepthWords (words of one row of a `rows` panel),
// Zero, Load, Broadcast, MultiplyAdd, Store.
// No lambdas here: they do not inherit the target of the function around them.
#pragma once

#ifndef DENSE_TARGET
#error "define DENSE_TARGET before including dense/kernels/panel_kernels.h"
#endif

#include <algorithm>
#include <cstring>

#include "dense/kernels/kernels.h"

namespace elasticctr::dense {
namespace {

#define DENSE_INLINE DENSE_TARGET inline __attribute__((always_inline))

// c[R, columns of the tile] = sum over depth words of a(r, d) b(d, column). Word d of row r of `a` is at a[r * kRowStep
// + d * kDepthStep] within a panel of kPanelDepth words; c and b have 32 words per row.
template <typename V, int R, int kColumnVectors, size_t kRowStep, size_t kDepthStep, size_t kPanelDepth>
DENSE_TARGET void Tile(const char* a_bytes, size_t a_stride, const typename V::Word* b, size_t depth, float* c) {
  typename V::Register sum[R][kColumnVectors];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kColumnVectors; ++v) sum[r][v] = V::Zero();
  }
  for (size_t done = 0; done < depth; done += kPanelDepth, a_bytes += a_stride) {
    const auto* a = reinterpret_cast<const typename V::Word*>(a_bytes);
    const size_t words = std::min(kPanelDepth, depth - done);
#pragma GCC unroll 2
    for (size_t d = 0; d < words; ++d, a += kDepthStep, b += kPanel) {
      typename V::Register right[kColumnVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kColumnVectors; ++v) right[v] = V::Load(b + v * V::kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const typename V::Register left = V::Broadcast(a + r * kRowStep);
#pragma GCC unroll 4
        for (int v = 0; v < kColumnVectors; ++v) sum[r][v] = V::MultiplyAdd(left, right[v], sum[r][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kColumnVectors; ++v) V::Store(c + r * kPanel + v * V::kLanes, sum[r][v]);
  }
}

template <typename V>
using TileFunction = void (*)(const char*, size_t, const typename V::Word*, size_t, float*);

// Tiles of every height, so that no product computes unneeded rows.
template <typename V, int kColumnVectors>
struct MultiplyTiles {
  TileFunction<V> of[V::kRows + 1] = {};
  constexpr MultiplyTiles() { Fill<V::kRows>(); }
  template <int R>
  constexpr void Fill() {
    of[R] = &Tile<V, R, kColumnVectors, V::kDepthWords, 1, V::kDepthWords>;
    if constexpr (R > 1) Fill<R - 1>();
  }
};

inline constexpr size_t kWholeDepth = SIZE_MAX / 2;

template <typename V>
struct GradientTiles {
  TileFunction<V> of[V::kGradientRows + 1] = {};
  constexpr GradientTiles() { Fill<V::kGradientRows>(); }
  template <int R>
  constexpr void Fill() {
    of[R] = &Tile<V, R, V::kVectors, 1, kPanel, kWholeDepth>;
    if constexpr (R > 1) Fill<R - 1>();
  }
};

// Prefetches lines [first, last) of memory that is read after the current computation. The activations of a large batch
// have left the caches by the backward pass, and tiles are too far apart for the hardware to see a pattern.
DENSE_INLINE void PrefetchLines(const char* from, size_t first, size_t last) {
  for (size_t line = first; line < last; ++line) __builtin_prefetch(from + line * 64);
}

// `finish(c, rows, first row, panel, columns, epilogue)` ends each tile; groups of `kRowUnit` rows are never split.
template <typename V, size_t kRowUnit, void (*finish)(const float*, size_t, size_t, size_t, size_t, const Epilogue&)>
DENSE_TARGET void MultiplyPanels(const Block& a, size_t depth_words, size_t b_panel_words, const char* packed,
                                 size_t columns, const Epilogue& epilogue) {
  static constexpr MultiplyTiles<V, V::kVectors> tiles;
  static constexpr MultiplyTiles<V, 1> narrow_tiles;
  constexpr size_t kColumns = V::kVectors * V::kLanes;
  const size_t units = (a.count + kRowUnit - 1) / kRowUnit;
  constexpr size_t kTileUnits = V::kRows / kRowUnit;
  const size_t parts = (units + kTileUnits - 1) / kTileUnits;
  alignas(64) float c[V::kRows * kPanel];
  for (size_t panel = 0; panel < Panels(columns); ++panel) {
    const auto* b = reinterpret_cast<const typename V::Word*>(packed) + panel * b_panel_words;
    const size_t width = std::min(kPanel, columns - panel * kPanel);
    if (width < kPanel) std::memset(c, 0, sizeof c);
    size_t unit = 0;
    for (size_t part = 0; part < parts; ++part) {
      const size_t rows = (units / parts + (part < units % parts)) * kRowUnit;
      const size_t first = unit * kRowUnit;
      const char* a_rows = a.rows + first * V::kDepthWords * sizeof(typename V::Word);
      if (epilogue.mask != nullptr) {
        constexpr size_t kRowBytes = V::kDepthWords * sizeof(typename V::Word);
        const Block& mask = *epilogue.mask;
        const char* from =
            kRowUnit == 1 ? mask.rows + panel * mask.rows_stride : mask.pairs + panel * mask.pairs_stride;
        PrefetchLines(from, first * kRowBytes / 64, (first + rows) * kRowBytes / 64);
      }
      for (size_t column = 0; column < width; column += kColumns) {
        const auto& tile = width - column <= V::kLanes ? narrow_tiles.of : tiles.of;
        tile[rows](a_rows, a.rows_stride, b + column, depth_words, c + column);
      }
      finish(c, rows, first, panel, columns, epilogue);
      unit += rows / kRowUnit;
    }
  }
}

// Adds a tile of a weight gradient to its destination, or overwrites it.
DENSE_INLINE void StoreGradient(const float* c, size_t rows, size_t columns, bool add, float* to, size_t stride) {
  for (size_t r = 0; r < rows; ++r, c += kPanel, to += stride) {
    if (columns == kPanel) {
      if (add) {
        for (size_t j = 0; j < kPanel; ++j) to[j] += c[j];
      } else {
        for (size_t j = 0; j < kPanel; ++j) to[j] = c[j];
      }
    } else {
      for (size_t j = 0; j < columns; ++j) to[j] = add ? to[j] + c[j] : c[j];
    }
  }
}

// Rows summed in registers before being added to memory: a chunk of two panels stays in the first-level cache.
inline constexpr size_t kGradientChunk = 128;  // words
static_assert(kGradientRows % (2 * kGradientChunk) == 0);

template <typename V>
DENSE_TARGET void GradientPanels(const Block& dy, const Block& x, size_t words, size_t in, size_t first, size_t last,
                                 bool add, float* weights) {
  static constexpr GradientTiles<V> tiles;
  constexpr size_t kColumns = V::kVectors * V::kLanes;
  constexpr size_t kRowBytes = kPanel * sizeof(typename V::Word);
  alignas(64) float c[V::kGradientRows * kPanel];
  for (size_t done = 0; done == 0 || done < words; done += kGradientChunk) {
    const size_t depth = std::min(kGradientChunk, words - done);
    const size_t after = std::min(kGradientChunk, words - done - depth);  // of the next chunk
    for (size_t panel = 0; panel < Panels(in); ++panel) {
      const size_t width = std::min(kPanel, in - panel * kPanel);
      const auto* b = reinterpret_cast<const typename V::Word*>(x.pairs + panel * x.pairs_stride) + done * kPanel;
      const bool is_last = panel + 1 == Panels(in);
      const char* next =
          x.pairs + (is_last ? 0 : panel + 1) * x.pairs_stride + (done + is_last * kGradientChunk) * kRowBytes;
      const size_t next_lines = (is_last ? after : depth) * kRowBytes / 64;
      size_t fetched = 0;
      for (size_t n = first; n < last; n += V::kGradientRows) {
        const size_t rows = std::min<size_t>(V::kGradientRows, last - n);
        const size_t until = next_lines * (n + rows - first) / (last - first);
        PrefetchLines(next, fetched, until);
        fetched = until;
        const auto* a = reinterpret_cast<const typename V::Word*>(dy.pairs + n / kPanel * dy.pairs_stride) +
                        done * kPanel + n % kPanel;
        for (size_t column = 0; column < width; column += kColumns) {
          tiles.of[rows](reinterpret_cast<const char*>(a), 0, b + column, depth, c + column);
        }
        StoreGradient(c, rows, width, add || done != 0, weights + n * in + panel * kPanel, in);
      }
    }
  }
}

}  // namespace
}  // namespace elasticctr::dense
