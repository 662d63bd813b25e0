// Towers of odd shapes with every kernel set, compared with plain loops in double, on one thread and on several.
#include "dense/tower/tower.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "dense/adam.h"
#include "tests/check.h"
#include "util/status.h"
#include "util/thread_pool.h"

namespace elasticctr::dense {
namespace {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

// Rounds to the nearest bf16, ties to even.
double RoundBfloat16(double value) {
  uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  bits += 0x7FFF + (bits >> 16 & 1);
  return std::bit_cast<float>(bits & 0xFFFF0000u);
}

struct Gradients {
  Floats y, dx;
  std::vector<Floats> weights, biases;
};

struct Problem {
  size_t rows;
  std::vector<size_t> widths;
  std::vector<Floats> weights, biases;
  Floats x, dy;

  Problem(size_t n, std::vector<size_t> w) : rows(n), widths(std::move(w)) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const auto fill = [&](size_t size, float scale) {
      Floats values(size);
      for (float& v : values) v = scale * normal(random);
      return values;
    };
    for (size_t l = 0; l + 1 < widths.size(); ++l) {
      weights.push_back(fill(widths[l] * widths[l + 1], 1 / std::sqrt(static_cast<float>(widths[l]))));
      biases.push_back(fill(widths[l + 1], 0.3f));
    }
    x = fill(rows * Stride(), 1);
    dy = fill(rows * widths.back(), 1);
  }

  size_t Stride() const { return widths[0] + 3; }

  // dx has guard columns to the right of each row, which must stay unchanged.
  Gradients Run(const Kernels& kernels) const {
    Tower tower(widths, false, kernels);
    Workspace workspace;
    std::vector<const float*> w, b;
    std::vector<float*> dw, db;
    Gradients result;
    result.y.resize(rows * widths.back());
    result.dx.assign(rows * Stride(), 77.0f);
    for (size_t l = 0; l < weights.size(); ++l) {
      w.push_back(weights[l].data());
      b.push_back(biases[l].data());
      result.weights.emplace_back(weights[l].size());
      result.biases.emplace_back(biases[l].size());
    }
    for (size_t l = 0; l < weights.size(); ++l) {
      dw.push_back(result.weights[l].data());
      db.push_back(result.biases[l].data());
    }
    tower.Forward({x.data(), Stride()}, rows, w.data(), b.data(), {}, {result.y.data(), widths.back()}, workspace,
                  true);
    tower.Backward({dy.data(), widths.back()}, w.data(), {{result.dx.data(), Stride()}, dw.data(), db.data()},
                   workspace);
    bool refused = false;
    try {
      tower.Backward({dy.data(), widths.back()}, w.data(), {{}, dw.data(), db.data()}, workspace);
    } catch (const Error& e) {
      refused = e.code() == Code::kFailedPrecondition;
    }
    CHECK(refused);
    return result;
  }

  struct Reference {
    Doubles y, dx;
    std::vector<Doubles> weights, biases;
  };
  // In bf16 all inputs of a product are rounded first.
  Reference Expected(Precision precision) const {
    const auto rounded = [&](double value) { return precision == Precision::kBfloat16 ? RoundBfloat16(value) : value; };
    const size_t layers = weights.size();
    std::vector<Doubles> acts(1, Doubles(rows * widths[0]));
    for (size_t r = 0; r < rows; ++r) {
      for (size_t k = 0; k < widths[0]; ++k) acts[0][r * widths[0] + k] = rounded(x[r * Stride() + k]);
    }
    for (size_t l = 0; l < layers; ++l) {
      const size_t in = widths[l], out = widths[l + 1];
      Doubles y(rows * out);
      for (size_t r = 0; r < rows; ++r) {
        for (size_t n = 0; n < out; ++n) {
          double sum = biases[l][n];
          for (size_t k = 0; k < in; ++k) sum += acts[l][r * in + k] * rounded(weights[l][n * in + k]);
          y[r * out + n] = l + 1 == layers ? sum : sum < 0 ? 0 : rounded(sum);
        }
      }
      acts.push_back(y);
    }
    Reference result;
    result.y = acts.back();
    result.weights.resize(layers);
    result.biases.resize(layers);
    Doubles g(dy.begin(), dy.end());
    for (size_t l = layers; l-- > 0;) {
      const size_t in = widths[l], out = widths[l + 1];
      Doubles dw(in * out), db(out), previous(rows * in);
      for (size_t r = 0; r < rows; ++r) {
        for (size_t n = 0; n < out; ++n) {
          const double d = rounded(g[r * out + n]);
          db[n] += d;
          for (size_t k = 0; k < in; ++k) {
            dw[n * in + k] += d * acts[l][r * in + k];
            if (l == 0 || acts[l][r * in + k] > 0) previous[r * in + k] += d * rounded(weights[l][n * in + k]);
          }
        }
      }
      result.weights[l] = dw;
      result.biases[l] = db;
      g = previous;
    }
    result.dx = g;
    return result;
  }
};

double RelativeError(const Floats& actual, const Doubles& expected) {
  CHECK(actual.size() == expected.size());
  double error = 0, size = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    error += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(error / (size + 1e-30));
}

void TestTower(const Kernels& kernels, size_t rows, const std::vector<size_t>& widths) {
  const Problem problem(rows, widths);
  const auto expected = problem.Expected(kernels.precision);
  // In bf16 a sum may occasionally fall on the other side of a rounding boundary.
  const double tolerance = kernels.precision == Precision::kFloat32 ? 1e-5 : 2e-3;
  ThreadPool::SetDefaultThreads(1);
  const Gradients one = problem.Run(kernels);
  Floats dx(rows * widths[0]);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t k = 0; k < problem.Stride(); ++k) {
      const float value = one.dx[r * problem.Stride() + k];
      if (k < widths[0]) {
        dx[r * widths[0] + k] = value;
      } else {
        CHECK(value == 77.0f);
      }
    }
  }
  CHECK(RelativeError(one.y, expected.y) < tolerance);
  CHECK(RelativeError(dx, expected.dx) < tolerance);
  for (size_t l = 0; l + 1 < widths.size(); ++l) {
    CHECK(RelativeError(one.weights[l], expected.weights[l]) < tolerance);
    CHECK(RelativeError(one.biases[l], expected.biases[l]) < tolerance);
  }
  ThreadPool::SetDefaultThreads(3);
  const Gradients three = problem.Run(kernels);
  CHECK(one.y == three.y && one.dx == three.dx && one.weights == three.weights && one.biases == three.biases);
}

void TestAdam() {
  Floats weights(20001, 1.0f), gradient(20001), mean(20001), square(20001);
  for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = i % 2 ? 0.5f : -2.0f;
  float step = 0;
  // With bias correction the first step is the learning rate against the gradient's sign, whatever its size.
  AdamStep({.learning_rate = 0.25}, {{weights.data(), gradient.data(), mean.data(), square.data(), &step, 20001}});
  CHECK(step == 1);
  for (size_t i = 0; i < weights.size(); ++i) CHECK(std::fabs(weights[i] - (i % 2 ? 0.75f : 1.25f)) < 1e-6f);
}

// Gradients of memorised samples.
void TestTinyGradientsAreZero(const Kernels& kernels) {
#if defined(__x86_64__)
  Problem problem(40, {8, 16, 1});
  for (float& gradient : problem.dy) gradient = 1e-40f;
  const Gradients found = problem.Run(kernels);
  for (const Floats& weights : found.weights)
    CHECK(std::count(weights.begin(), weights.end(), 0.0f) == ptrdiff_t(weights.size()));
  for (size_t r = 0; r < 40; ++r) CHECK(found.dx[r * problem.Stride()] == 0.0f);
#endif
}

// Moments of a parameter without gradients end as zero: subnormal numbers would cost a hundred times as much in every
// later step. Subnormal numbers elsewhere on this thread are unchanged.
void TestTinyMomentsEndAsZero() {
#if defined(__x86_64__)
  const float tiny = 1e-40f;
  Floats weights(33, 1.0f), gradient(33), mean(33, tiny), square(33, tiny);
  float step = 10;
  AdamStep({}, {{weights.data(), gradient.data(), mean.data(), square.data(), &step, 33}});
  for (size_t i = 0; i < 33; ++i) CHECK(mean[i] == 0.0f && square[i] == 0.0f && weights[i] == 1.0f);
  volatile float half = 0.5f;
  CHECK(tiny * half > 0.0f);
#endif
}

}  // namespace
}  // namespace elasticctr::dense

int main() {
  using namespace elasticctr::dense;
  for (const Kernels* kernels : UsableKernels()) {
    TestTower(*kernels, 1, {1, 1});
    TestTower(*kernels, 3, {7, 13, 1});
    TestTower(*kernels, 67, {33, 100, 32, 5});
    TestTower(*kernels, 300, {45, 70, 1});
    TestTower(*kernels, 1100, {9, 33, 2});
    TestTower(*kernels, 2600, {5, 40, 3});
    TestTinyGradientsAreZero(*kernels);
    std::printf("%s ok\n", kernels->name);
  }
  TestAdam();
  TestTinyMomentsEndAsZero();
  std::puts("dense_test passed");
  return 0;
}
