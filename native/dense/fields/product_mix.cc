#include "dense/fields/product_mix.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "dense/buffer.h"
#include "dense/fields/lanes.h"
#include "util/thread_pool.h"

namespace elasticctr::dense {
namespace {

// Columns processed at a time: their rows stay in a core's first caches.
constexpr size_t kChunk = 512;
constexpr size_t kVectors = kChunk / kLanes;
// Columns whose share of the weights' gradient is summed at once.
constexpr size_t kSegment = 8 * kChunk;

// Chunks of rows are kVectors apart.
ELASTICCTR_CLONES void MixChunk(const ProductMix& shape, const Lanes* a, const Lanes* b, const float* w, Lanes* z) {
  const size_t products = shape.left * shape.right;
  for (size_t v = 0; v < kVectors; v += 2) {
    InPieces<8>(shape.out, [&](size_t first, auto size) __attribute__((always_inline)) {
      constexpr size_t kSize = decltype(size)::value;
      Lanes sum0[kSize] = {}, sum1[kSize] = {};
      const float* weight = w + first * products;
      for (size_t i = 0; i < shape.left; ++i) {
        const Lanes a0 = a[i * kVectors + v], a1 = a[i * kVectors + v + 1];
        for (size_t j = 0; j < shape.right; ++j, ++weight) {
          const Lanes product0 = a0 * b[j * kVectors + v], product1 = a1 * b[j * kVectors + v + 1];
#pragma GCC unroll 8
          for (size_t h = 0; h < kSize; ++h) {
            const float by = weight[h * products];
            sum0[h] += by * product0;
            sum1[h] += by * product1;
          }
        }
      }
#pragma GCC unroll 8
      for (size_t h = 0; h < kSize; ++h) {
        z[(first + h) * kVectors + v] = sum0[h];
        z[(first + h) * kVectors + v + 1] = sum1[h];
      }
    });
  }
}

// Gradients of a and b. A product's gradient is Σ_h w[h, i, j] g[h].
ELASTICCTR_CLONES void GoBackToRows(const ProductMix& shape, const Lanes* a, const Lanes* b, const float* w,
                                    const Lanes* g, Lanes* to_a, Lanes* to_b) {
  const size_t products = shape.left * shape.right;
  for (size_t v = 0; v < kVectors; v += 2) {
    for (size_t j = 0; j < shape.right; ++j) to_b[j * kVectors + v] = to_b[j * kVectors + v + 1] = Lanes{};
    for (size_t i = 0; i < shape.left; ++i) {
      const Lanes a0 = a[i * kVectors + v], a1 = a[i * kVectors + v + 1];
      Lanes total0 = {}, total1 = {};
      InPieces<5>(shape.right, [&](size_t first, auto size) __attribute__((always_inline)) {
        constexpr size_t kSize = decltype(size)::value;
        Lanes sum0[kSize] = {}, sum1[kSize] = {};
        const float* weight = w + i * shape.right + first;
        for (size_t h = 0; h < shape.out; ++h, weight += products) {
          const Lanes g0 = g[h * kVectors + v], g1 = g[h * kVectors + v + 1];
#pragma GCC unroll 8
          for (size_t j = 0; j < kSize; ++j) {
            sum0[j] += weight[j] * g0;
            sum1[j] += weight[j] * g1;
          }
        }
#pragma GCC unroll 8
        for (size_t j = 0; j < kSize; ++j) {
          const size_t place = (first + j) * kVectors + v;
          total0 += sum0[j] * b[place];
          total1 += sum1[j] * b[place + 1];
          to_b[place] += sum0[j] * a0;
          to_b[place + 1] += sum1[j] * a1;
        }
      });
      to_a[i * kVectors + v] = total0;
      to_a[i * kVectors + v + 1] = total1;
    }
  }
}

// Adds to the weights' gradient [out, left * right], whose sums over columns are kept separate per lane.
ELASTICCTR_CLONES void AddToWeights(const ProductMix& shape, const Lanes* a, const Lanes* b, const Lanes* g,
                                    Lanes* to_w) {
  const size_t products = shape.left * shape.right;
  InPieces<8>(shape.out, [&](size_t first, auto size) __attribute__((always_inline)) {
    constexpr size_t kSize = decltype(size)::value;
    const Lanes* gradient = g + first * kVectors;
    Lanes* to = to_w + first * products;
    for (size_t i = 0; i < shape.left; ++i) {
      for (size_t j = 0; j < shape.right; ++j, ++to) {
        const Lanes *x = a + i * kVectors, *y = b + j * kVectors;
        Lanes sum[kSize] = {};
        for (size_t v = 0; v < kVectors; ++v) {
          const Lanes product = x[v] * y[v];
#pragma GCC unroll 8
          for (size_t h = 0; h < kSize; ++h) sum[h] += product * gradient[h * kVectors + v];
        }
#pragma GCC unroll 8
        for (size_t h = 0; h < kSize; ++h) to[h * products] += sum[h];
      }
    }
  });
}

void LoadChunk(const float* from, size_t columns, size_t rows, size_t first, Lanes* to) {
  const size_t count = std::min(kChunk, columns - first);
  for (size_t r = 0; r < rows; ++r, to += kVectors) {
    auto* row = reinterpret_cast<char*>(to);
    std::memcpy(row, from + r * columns + first, count * sizeof(float));
    std::memset(row + count * sizeof(float), 0, (kChunk - count) * sizeof(float));
  }
}

void StoreChunk(const Lanes* from, size_t columns, size_t rows, size_t first, float* to) {
  const size_t count = std::min(kChunk, columns - first);
  for (size_t r = 0; r < rows; ++r) {
    std::memcpy(to + r * columns + first, from + r * kVectors, count * sizeof(float));
  }
}

Lanes* Borrow(size_t lanes) {
  thread_local Buffer buffer;
  buffer.Reserve(lanes * sizeof(Lanes));
  return reinterpret_cast<Lanes*>(buffer.data());
}

}  // namespace

void ProductMix::Forward(const float* a, const float* b, const float* w, size_t columns, float* z) const {
  ThreadPool::Default().Run((columns + kChunk - 1) / kChunk, [&](size_t task) {
    Lanes* lefts = Borrow((left + right + out) * kVectors);
    Lanes *rights = lefts + left * kVectors, *made = rights + right * kVectors;
    const size_t first = task * kChunk;
    LoadChunk(a, columns, left, first, lefts);
    LoadChunk(b, columns, right, first, rights);
    MixChunk(*this, lefts, rights, w, made);
    StoreChunk(made, columns, out, first, z);
  });
}

void ProductMix::Backward(const float* a, const float* b, const float* w, const float* gradient, size_t columns,
                          float* to_a, float* to_b, float* to_w) const {
  const size_t weights = out * left * right, segments = (columns + kSegment - 1) / kSegment;
  std::vector<float> sums(segments * weights);
  ThreadPool::Default().Run(segments, [&](size_t segment) {
    Lanes* lefts = Borrow((2 * left + 2 * right + out) * kVectors + weights);
    Lanes *rights = lefts + left * kVectors, *g = rights + right * kVectors;
    Lanes *made_a = g + out * kVectors, *made_b = made_a + left * kVectors, *made_w = made_b + right * kVectors;
    std::fill_n(made_w, weights, Lanes{});
    const size_t end = std::min(columns, (segment + 1) * kSegment);
    for (size_t first = segment * kSegment; first < end; first += kChunk) {
      LoadChunk(a, columns, left, first, lefts);
      LoadChunk(b, columns, right, first, rights);
      LoadChunk(gradient, columns, out, first, g);
      GoBackToRows(*this, lefts, rights, w, g, made_a, made_b);
      StoreChunk(made_a, columns, left, first, to_a);
      StoreChunk(made_b, columns, right, first, to_b);
      AddToWeights(*this, lefts, rights, g, made_w);
    }
    float* sum = sums.data() + segment * weights;
    for (size_t k = 0; k < weights; ++k) {
      for (size_t l = 0; l < kLanes; ++l) sum[k] += made_w[k][l];
    }
  });
  std::fill_n(to_w, weights, 0.0f);
  for (size_t segment = 0; segment < segments; ++segment) {
    for (size_t k = 0; k < weights; ++k) to_w[k] += sums[segment * weights + k];
  }
}

}  // namespace elasticctr::dense
