// The kernels of batch norm and dropout, compared with plain loops in double, and towers with both on one and several
// threads.
#include <bit>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "dense/tower/tower.h"
#include "tests/check.h"
#include "util/status.h"
#include "util/thread_pool.h"

namespace elasticctr::dense {
namespace {

using Floats = std::vector<float>;

Floats RandomFloats(size_t size, unsigned seed, float shift = 0.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Floats values(size);
  for (float& v : values) v = normal(random) + shift;
  return values;
}

// A matrix in panels, in both forms, filled by the load kernel.
class Matrix {
 public:
  Matrix(const Kernels& kernels, size_t rows, size_t columns, const Floats& values = {})
      : kernels_(kernels), columns_(columns) {
    const size_t bytes = Panels(columns) * kernels.panel_bytes(rows);
    rows_.Reserve(bytes);
    pairs_.Reserve(bytes);
    block_ = Slice(kernels, pairs_, rows, 0, rows);
    block_.rows = kernels.precision == Precision::kFloat32 ? block_.pairs : rows_.data();
    block_.rows_stride = block_.pairs_stride;
    if (!values.empty()) kernels.load(values.data(), columns, columns, nullptr, 1.0f, block_);
  }

  const Block& block() const { return block_; }

  double At(size_t row, size_t column) const {
    const char* panel = block_.rows + column / kPanel * block_.rows_stride;
    const size_t place = row * kPanel + column % kPanel;
    if (kernels_.precision == Precision::kFloat32) return reinterpret_cast<const float*>(panel)[place];
    return std::bit_cast<float>(static_cast<uint32_t>(reinterpret_cast<const uint16_t*>(panel)[place]) << 16);
  }

  // What a product along the rows would read.
  double PairAt(size_t row, size_t column) const {
    if (kernels_.precision == Precision::kFloat32) return At(row, column);
    const char* panel = block_.pairs + column / kPanel * block_.pairs_stride;
    const auto* words = reinterpret_cast<const uint16_t*>(panel);
    const size_t place = (row / 2 * kPanel + column % kPanel) * 2 + row % 2;
    return std::bit_cast<float>(static_cast<uint32_t>(words[place]) << 16);
  }

  // Rows and columns past the matrix that kernels may read must be zero.
  void CheckPadding() const {
    for (size_t row = 0; row < RoundUp(block_.count, kernels_.row_multiple); ++row) {
      for (size_t column = 0; column < Panels(columns_) * kPanel; ++column) {
        if (row >= block_.count || column >= columns_) CHECK(At(row, column) == 0 && PairAt(row, column) == 0);
      }
    }
  }

 private:
  const Kernels& kernels_;
  size_t columns_;
  Buffer rows_, pairs_;
  Block block_;
};

void CheckClose(double actual, double expected, double size, double tolerance) {
  CHECK(std::fabs(actual - expected) <= tolerance * size);
}

Floats Padded(const Floats& values) {
  Floats padded = values;
  padded.resize(Panels(values.size()) * kPanel);
  return padded;
}

void TestSums(const Kernels& kernels, size_t rows, size_t columns) {
  const Matrix z(kernels, rows, columns, RandomFloats(rows * columns, 1, 5.0f));
  const Matrix g(kernels, rows, columns, RandomFloats(rows * columns, 2));
  const Floats mean = Padded(RandomFloats(columns, 3));
  const size_t padded = Panels(columns) * kPanel, units = (rows + kSumRows - 1) / kSumRows;
  Floats moments(units * 2 * padded), sums(units * 2 * padded);
  kernels.moments(z.block(), columns, moments.data());
  kernels.norm_sums(g.block(), z.block(), columns, mean.data(), sums.data());
  for (size_t unit = 0; unit < units; ++unit) {
    const size_t first = unit * kSumRows, count = std::min(kSumRows, rows - first);
    for (size_t j = 0; j < columns; ++j) {
      double sum = 0, squares = 0, gradient = 0, product = 0;
      for (size_t r = first; r < first + count; ++r) sum += z.At(r, j);
      for (size_t r = first; r < first + count; ++r) {
        const double d = z.At(r, j) - sum / static_cast<double>(count);
        squares += d * d;
        gradient += g.At(r, j);
        product += g.At(r, j) * (z.At(r, j) - mean[j]);
      }
      CheckClose(moments[2 * unit * padded + j], sum, 200, 1e-6);
      CheckClose(moments[(2 * unit + 1) * padded + j], squares, 100, 1e-5);
      CheckClose(sums[2 * unit * padded + j], gradient, 50, 1e-6);
      CheckClose(sums[(2 * unit + 1) * padded + j], product, 200, 1e-6);
    }
  }
}

void TestNormGradient(const Kernels& kernels, size_t rows, size_t columns) {
  const Matrix z(kernels, rows, columns, RandomFloats(rows * columns, 1));
  const Matrix g(kernels, rows, columns, RandomFloats(rows * columns, 2));
  const Matrix to(kernels, rows, columns);
  const Floats mean = Padded(RandomFloats(columns, 3)), slope = Padded(RandomFloats(columns, 4));
  const Floats along = Padded(RandomFloats(columns, 5)), constant = Padded(RandomFloats(columns, 6));
  kernels.norm_gradient(g.block(), z.block(), columns, {mean.data(), slope.data(), along.data(), constant.data()},
                        to.block());
  const double tolerance = kernels.precision == Precision::kFloat32 ? 1e-6 : 4e-3;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t j = 0; j < columns; ++j) {
      const double expected = slope[j] * g.At(r, j) + along[j] * (z.At(r, j) - mean[j]) + constant[j];
      CheckClose(to.At(r, j), expected, 10 + std::fabs(expected), tolerance);
      CHECK(to.At(r, j) == to.PairAt(r, j));
    }
  }
  to.CheckPadding();
}

void TestFinish(const Kernels& kernels, size_t rows, size_t columns) {
  const Matrix z(kernels, rows, columns, RandomFloats(rows * columns, 1));
  const Matrix to(kernels, rows, columns), whole(kernels, rows, columns);
  const Floats scale = Padded(RandomFloats(columns, 3)), shift = Padded(RandomFloats(columns, 4));
  const size_t stride = columns + 3;
  Floats dense(rows * stride, 77.0f);
  Epilogue epilogue;
  epilogue.count = rows;
  epilogue.scale = scale.data();
  epilogue.bias = shift.data();
  epilogue.relu = true;
  epilogue.batch_row = 64;
  epilogue.dense = dense.data();
  epilogue.dense_stride = stride;
  epilogue.panels = &whole.block();
  kernels.finish(z.block(), columns, epilogue);
  epilogue.dense = nullptr;
  epilogue.panels = &to.block();
  epilogue.dropout = MakeDropout(0.25, 9, 1);
  CHECK(epilogue.dropout.threshold == 16384);
  kernels.finish(z.block(), columns, epilogue);
  const double tolerance = kernels.precision == Precision::kFloat32 ? 1e-6 : 4e-3;
  size_t positive = 0, kept = 0;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t j = 0; j < stride; ++j) {
      const float value = dense[r * stride + j];
      if (j >= columns) {
        CHECK(value == 77.0f);
        continue;
      }
      const double expected = std::max(0.0, z.At(r, j) * scale[j] + shift[j]);
      CheckClose(value, expected, 1 + expected, 1e-6);
      CheckClose(whole.At(r, j), expected, 1 + expected, tolerance);
      CHECK(to.At(r, j) == to.PairAt(r, j));
      if (to.At(r, j) != 0) CheckClose(to.At(r, j), expected / 0.75, 1 + expected, 2 * tolerance);
      positive += whole.At(r, j) > 0;
      kept += to.At(r, j) > 0;
    }
  }
  CHECK(kept <= positive);
  if (positive > 1000) CHECK(std::fabs(static_cast<double>(kept) / static_cast<double>(positive) - 0.75) < 0.08);
  to.CheckPadding();
  whole.CheckPadding();
}

struct TowerRun {
  Floats y, dx;
  std::vector<Floats> weights, biases, scales, shifts, means, variances;
  bool operator==(const TowerRun&) const = default;
};

TowerRun RunTower(const Kernels& kernels, size_t rows, const std::vector<size_t>& widths, bool relu_last) {
  const Tower tower(widths, relu_last, kernels);
  const size_t layers = tower.layers(), norms = tower.relus();
  TowerRun run;
  std::vector<Floats> weights, biases, scales, shifts;
  for (size_t l = 0; l < layers; ++l) {
    weights.push_back(RandomFloats(widths[l] * widths[l + 1], static_cast<unsigned>(l)));
    biases.push_back(RandomFloats(widths[l + 1], 10));
    run.weights.emplace_back(weights[l].size());
    run.biases.emplace_back(biases[l].size());
  }
  for (size_t l = 0; l < norms; ++l) {
    scales.push_back(RandomFloats(widths[l + 1], 11));
    shifts.push_back(RandomFloats(widths[l + 1], 12));
    run.scales.emplace_back(widths[l + 1]);
    run.shifts.emplace_back(widths[l + 1]);
    run.means.emplace_back(widths[l + 1], 0.0f);
    run.variances.emplace_back(widths[l + 1], 1.0f);
  }
  Hidden hidden;
  hidden.norm.is_training = true;
  hidden.dropout = 0.3;
  hidden.seed = 4;
  const auto all = [](std::vector<Floats>& of) {
    std::vector<float*> pointers;
    for (Floats& values : of) pointers.push_back(values.data());
    return pointers;
  };
  for (size_t l = 0; l < norms; ++l) {
    hidden.norm.layers.push_back({scales[l].data(), shifts[l].data(), run.means[l].data(), run.variances[l].data()});
  }
  const auto w = all(weights), b = all(biases), dw = all(run.weights), db = all(run.biases);
  const auto ds = all(run.scales), dt = all(run.shifts);
  const Floats x = RandomFloats(rows * widths[0], 20), dy = RandomFloats(rows * widths.back(), 21);
  run.y.resize(rows * widths.back());
  run.dx.resize(x.size());
  Workspace workspace;
  for (int repeat = 0; repeat < 2; ++repeat) {
    tower.Forward({x.data(), widths[0]}, rows, w.data(), b.data(), hidden, {run.y.data(), widths.back()}, workspace,
                  true);
    tower.Backward({dy.data(), widths.back()}, w.data(),
                   {{run.dx.data(), widths[0]}, dw.data(), db.data(), ds.data(), dt.data()}, workspace);
  }
  return run;
}

void TestTower(const Kernels& kernels, size_t rows, const std::vector<size_t>& widths, bool relu_last) {
  ThreadPool::SetDefaultThreads(1);
  const TowerRun one = RunTower(kernels, rows, widths, relu_last);
  ThreadPool::SetDefaultThreads(3);
  CHECK(one == RunTower(kernels, rows, widths, relu_last));
  for (const float value : one.y) CHECK(std::isfinite(value));
  for (size_t l = 0; l < one.means.size(); ++l) {
    const bool is_batch = rows > 1;  // a single row does not update statistics, and biases keep their gradient
    for (const float mean : one.means[l]) CHECK((mean != 0.0f) == is_batch);
    for (const float gradient : one.biases[l]) CHECK(!is_batch || gradient == 0.0f);
  }
}

void TestWrongNorms() {
  const Tower tower({3, 4, 1}, false, FindKernels(Precision::kFloat32));
  Hidden hidden;
  hidden.norm.layers.resize(2);
  const Floats some(20);
  Floats y(2);
  const float* const of[] = {some.data(), some.data()};
  Workspace workspace;
  bool refused = false;
  try {
    tower.Forward({some.data(), 3}, 2, of, of, hidden, {y.data(), 1}, workspace, true);
  } catch (const Error& e) {
    refused = e.code() == Code::kInternal;
  }
  CHECK(refused);
}

}  // namespace
}  // namespace elasticctr::dense

int main() {
  using namespace elasticctr::dense;
  for (const Kernels* kernels : UsableKernels()) {
    for (const size_t rows : {1, 2, 31, 33, 100, 301}) {
      for (const size_t columns : {1, 17, 32, 77}) {
        TestSums(*kernels, rows, columns);
        TestNormGradient(*kernels, rows, columns);
        TestFinish(*kernels, rows, columns);
      }
    }
    for (const bool relu_last : {false, true}) {
      TestTower(*kernels, 1, {3, 5, 2}, relu_last);
      TestTower(*kernels, 67, {33, 100, 32, 5}, relu_last);
      TestTower(*kernels, 1100, {9, 33, 17, 2}, relu_last);
    }
    std::printf("%s ok\n", kernels->name);
  }
  TestWrongNorms();
  std::puts("dense_norm_test passed");
  return 0;
}
