#include "dense/fields/field_attention.h"

#include <algorithm>

#include "dense/buffer.h"
#include "dense/fields/lanes.h"
#include "util/thread_pool.h"

namespace elasticctr::dense {
namespace {

constexpr size_t kTaskSamples = 4 * kLanes;

// to[k] = Σ_i a[i * a_step] * b[i * b_step + k * b_next] for k < n.
ELASTICCTR_INLINE void Multiply(const Lanes* a, size_t a_step, const Lanes* b, size_t b_step, size_t b_next,
                                size_t count, size_t n, Lanes* to) {
  InPieces<8>(n, [&](size_t first, auto size) __attribute__((always_inline)) {
    constexpr size_t kSize = decltype(size)::value;
    const Lanes* from = b + first * b_next;
    Lanes sum[kSize] = {};
    for (size_t i = 0; i < count; ++i) {
      const Lanes by = a[i * a_step];
#pragma GCC unroll 8
      for (size_t k = 0; k < kSize; ++k) sum[k] += by * from[i * b_step + k * b_next];
    }
#pragma GCC unroll 8
    for (size_t k = 0; k < kSize; ++k) to[first + k] = sum[k];
  });
}

ELASTICCTR_INLINE void Softmax(Lanes* scores, size_t count, float scale) {
  Lanes most = scores[0] * scale;
  for (size_t j = 0; j < count; ++j) {
    scores[j] *= scale;
    most = most < scores[j] ? scores[j] : most;
  }
  Lanes sum = {};
  for (size_t j = 0; j < count; ++j) sum += scores[j] = ExpOfNegative(scores[j] - most);
  const Lanes share = 1.0f / sum;
  for (size_t j = 0; j < count; ++j) scores[j] *= share;
}

// One head of sixteen samples. `x` is its queries; keys, values and residual follow at steps of `width`, the next
// field's after 4 * width. `scores` has room for one row.
ELASTICCTR_CLONES void AttendHead(const FieldAttention& shape, const Lanes* x, Lanes* scores, Lanes* result) {
  const size_t fields = shape.fields, dim = shape.head_dim, width = shape.width(), row = 4 * width;
  for (size_t i = 0; i < fields; ++i) {
    Multiply(x + i * row, 1, x + width, 1, row, dim, fields, scores);
    Softmax(scores, fields, shape.scale);
    Lanes* to = result + i * width;
    Multiply(scores, 1, x + 2 * width, row, 1, fields, dim, to);
    const Lanes* residual = x + i * row + 3 * width;
    for (size_t d = 0; d < dim; ++d) {
      const Lanes sum = to[d] + residual[d];
      to[d] = sum > 0.0f ? sum : Lanes{};
    }
  }
}

// Turns the projections of one head, as in AttendHead, into their gradients. `g` is the result's gradient after the
// ReLU's gate, one field per `width`. `attention` and `slopes` are [fields, fields], `made` [fields, head_dim].
ELASTICCTR_CLONES void GoBackThroughHead(const FieldAttention& shape, const Lanes* g, Lanes* x, Lanes* attention,
                                         Lanes* slopes, Lanes* made) {
  const size_t fields = shape.fields, dim = shape.head_dim, width = shape.width(), row = 4 * width;
  Lanes *queries = x, *keys = x + width, *values = x + 2 * width, *residual = x + 3 * width;
  for (size_t i = 0; i < fields; ++i) {
    Lanes *p = attention + i * fields, *s = slopes + i * fields;
    Multiply(queries + i * row, 1, keys, 1, row, dim, fields, p);
    Softmax(p, fields, shape.scale);
    Multiply(g + i * width, 1, values, 1, row, dim, fields, s);
    Lanes mean = {};
    for (size_t j = 0; j < fields; ++j) mean += p[j] * s[j];
    for (size_t j = 0; j < fields; ++j) s[j] = p[j] * (s[j] - mean) * shape.scale;
    Multiply(s, 1, keys, row, 1, fields, dim, made + i * dim);
  }
  for (size_t j = 0; j < fields; ++j) {
    Multiply(attention + j, fields, g, width, 1, fields, dim, values + j * row);
    Multiply(slopes + j, fields, queries, row, 1, fields, dim, keys + j * row);
  }
  for (size_t i = 0; i < fields; ++i) {
    std::copy_n(made + i * dim, dim, queries + i * row);
    std::copy_n(g + i * width, dim, residual + i * row);
  }
}

ELASTICCTR_CLONES void PassWherePositive(const Lanes* result, size_t count, Lanes* gradient) {
  for (size_t i = 0; i < count; ++i) gradient[i] = result[i] > 0.0f ? gradient[i] : Lanes{};
}

// Thread-local Lanes, kept between calls, for arrays of the given lengths.
template <typename... Lengths>
Lanes* Borrow(Lengths... lengths) {
  thread_local Buffer buffer;
  buffer.Reserve((lengths + ...) * sizeof(Lanes));
  return reinterpret_cast<Lanes*>(buffer.data());
}

// Calls fn(first sample, count) for up to kLanes samples at a time.
template <typename Fn>
void ForLanes(size_t batch, Fn&& fn) {
  ThreadPool::Default().Run((batch + kTaskSamples - 1) / kTaskSamples, [&](size_t task) {
    const size_t end = std::min(batch, (task + 1) * kTaskSamples);
    for (size_t b = task * kTaskSamples; b < end; b += kLanes) fn(b, std::min(kLanes, end - b));
  });
}

}  // namespace

void FieldAttention::Forward(const float* projected, size_t batch, float* result) const {
  const size_t all = fields * width();
  ForLanes(batch, [&](size_t b, size_t count) {
    Lanes* x = Borrow(4 * all, all, fields);
    Lanes *made = x + 4 * all, *scores = made + all;
    ToLanes(projected + b * 4 * all, 4 * all, 4 * all, count, x);
    for (size_t h = 0; h < heads; ++h) AttendHead(*this, x + h * head_dim, scores, made + h * head_dim);
    FromLanes(made, all, count, result + b * all, all);
  });
}

void FieldAttention::Backward(const float* projected, const float* result, const float* gradient, size_t batch,
                              float* to_projected) const {
  const size_t all = fields * width();
  ForLanes(batch, [&](size_t b, size_t count) {
    Lanes* x = Borrow(4 * all, all, all, 2 * fields * fields);
    Lanes *g = x + 4 * all, *made = g + all, *attention = made + all, *slopes = attention + fields * fields;
    ToLanes(projected + b * 4 * all, 4 * all, 4 * all, count, x);
    ToLanes(gradient + b * all, all, all, count, g);
    ToLanes(result + b * all, all, all, count, made);
    PassWherePositive(made, all, g);
    for (size_t h = 0; h < heads; ++h) {
      GoBackThroughHead(*this, g + h * head_dim, x + h * head_dim, attention, slopes, made);
    }
    FromLanes(x, 4 * all, count, to_projected + b * 4 * all, 4 * all);
  });
}

}  // namespace elasticctr::dense
