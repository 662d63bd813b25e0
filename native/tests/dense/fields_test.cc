// Attention among fields and mixes of products, compared with plain loops in double, on sizes around block boundaries.
#include <cmath>
#include <random>
#include <vector>

#include "dense/fields/field_attention.h"
#include "dense/fields/product_mix.h"
#include "tests/check.h"
#include "util/thread_pool.h"

namespace elasticctr::dense {
namespace {

using Floats = std::vector<float>;

Floats RandomFloats(size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Floats values(size);
  for (float& v : values) v = normal(random);
  return values;
}

bool IsNear(double found, double expected, double size) { return std::abs(found - expected) <= 2e-5 * (1.0 + size); }

// Values by the formula; the gradient along random directions by finite differences.
double AttendAt(const FieldAttention& shape, const std::vector<double>& x, size_t sample, size_t i, size_t h,
                size_t d) {
  const size_t width = shape.width(), row = 4 * width;
  const double* of = x.data() + sample * shape.fields * row + h * shape.head_dim;
  std::vector<double> share(shape.fields);
  double sum = 0, read = 0;
  for (size_t j = 0; j < shape.fields; ++j) {
    double score = 0;
    for (size_t k = 0; k < shape.head_dim; ++k) score += of[i * row + k] * of[j * row + width + k];
    sum += share[j] = std::exp(score * shape.scale);
  }
  for (size_t j = 0; j < shape.fields; ++j) read += share[j] / sum * of[j * row + 2 * width + d];
  return std::max(0.0, read + of[i * row + 3 * width + d]);
}

double AttendLoss(const FieldAttention& shape, const std::vector<double>& x, const Floats& gradient, size_t batch) {
  double loss = 0;
  size_t place = 0;
  for (size_t b = 0; b < batch; ++b) {
    for (size_t i = 0; i < shape.fields; ++i) {
      for (size_t h = 0; h < shape.heads; ++h) {
        for (size_t d = 0; d < shape.head_dim; ++d) loss += gradient[place++] * AttendAt(shape, x, b, i, h, d);
      }
    }
  }
  return loss;
}

void TestAttention(const FieldAttention& shape, size_t batch) {
  const size_t results = batch * shape.fields * shape.width();
  Floats projected = RandomFloats(4 * results, 1), result(results), gradient = RandomFloats(results, 2);
  for (float& v : projected) v *= 0.5f;
  shape.Forward(projected.data(), batch, result.data());
  const std::vector<double> exact(projected.begin(), projected.end());
  size_t place = 0;
  for (size_t b = 0; b < batch; ++b) {
    for (size_t i = 0; i < shape.fields; ++i) {
      for (size_t h = 0; h < shape.heads; ++h) {
        for (size_t d = 0; d < shape.head_dim; ++d) {
          CHECK(IsNear(result[place++], AttendAt(shape, exact, b, i, h, d), 1.0));
        }
      }
    }
  }
  Floats to_projected(4 * results);
  shape.Backward(projected.data(), result.data(), gradient.data(), batch, to_projected.data());
  const Floats direction = RandomFloats(4 * results, 3);
  constexpr double kStep = 1e-6;
  std::vector<double> ahead = exact, behind = exact;
  double expected = 0, size = 0;
  for (size_t k = 0; k < 4 * results; ++k) {
    ahead[k] += kStep * direction[k];
    behind[k] -= kStep * direction[k];
    expected += double{to_projected[k]} * direction[k];
    size += std::abs(double{to_projected[k]} * direction[k]);
  }
  const double found = (AttendLoss(shape, ahead, gradient, batch) - AttendLoss(shape, behind, gradient, batch)) / 2;
  CHECK(IsNear(found / kStep, expected, size));
}

void TestMix(const ProductMix& shape, size_t columns) {
  const size_t products = shape.left * shape.right;
  const Floats a = RandomFloats(shape.left * columns, 4), b = RandomFloats(shape.right * columns, 5);
  const Floats w = RandomFloats(shape.out * products, 6), g = RandomFloats(shape.out * columns, 7);
  Floats z(shape.out * columns), to_a(a.size()), to_b(b.size()), to_w(w.size());
  shape.Forward(a.data(), b.data(), w.data(), columns, z.data());
  shape.Backward(a.data(), b.data(), w.data(), g.data(), columns, to_a.data(), to_b.data(), to_w.data());
  std::vector<double> exact_a(a.size()), exact_b(b.size()), exact_w(w.size());
  for (size_t h = 0; h < shape.out; ++h) {
    for (size_t n = 0; n < columns; ++n) {
      double sum = 0;
      const double slope = g[h * columns + n];
      for (size_t i = 0; i < shape.left; ++i) {
        for (size_t j = 0; j < shape.right; ++j) {
          const double weight = w[h * products + i * shape.right + j], x = a[i * columns + n], y = b[j * columns + n];
          sum += weight * x * y;
          exact_a[i * columns + n] += slope * weight * y;
          exact_b[j * columns + n] += slope * weight * x;
          exact_w[h * products + i * shape.right + j] += slope * x * y;
        }
      }
      CHECK(IsNear(z[h * columns + n], sum, static_cast<double>(products)));
    }
  }
  for (size_t k = 0; k < a.size(); ++k) CHECK(IsNear(to_a[k], exact_a[k], static_cast<double>(products)));
  for (size_t k = 0; k < b.size(); ++k) CHECK(IsNear(to_b[k], exact_b[k], static_cast<double>(products)));
  for (size_t k = 0; k < w.size(); ++k) CHECK(IsNear(to_w[k], exact_w[k], std::sqrt(static_cast<double>(columns))));
  // The number of threads changes nothing.
  ThreadPool::SetDefaultThreads(3);
  Floats again(w.size());
  shape.Backward(a.data(), b.data(), w.data(), g.data(), columns, to_a.data(), to_b.data(), again.data());
  ThreadPool::SetDefaultThreads(1);
  CHECK(again == to_w);
}

}  // namespace
}  // namespace elasticctr::dense

int main() {
  using namespace elasticctr::dense;
  elasticctr::ThreadPool::SetDefaultThreads(1);
  TestAttention({1, 1, 1, 1.0f}, 1);
  TestAttention({10, 2, 20, 1.0f}, 17);
  TestAttention({3, 3, 5, 0.5f}, 80);
  TestAttention({17, 1, 9, 0.3f}, 5);
  TestMix({1, 1, 1}, 1);
  TestMix({16, 10, 16}, 513);
  TestMix({3, 7, 9}, 4100);
  return 0;
}
