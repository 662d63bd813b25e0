// Every optimizer: its width does not change an element's result, state is where it should be, and a step without a
// gradient moves nothing if the formula says so. Python tests check the formulas in float64.

#include "table/optimizer/optimizer.h"

#include <cmath>

#include "tests/check.h"
#include "tests/table/fixture.h"

namespace elasticctr {
namespace {

struct OneRow {
  OneRow(const Optimizer& optimizer, uint32_t dim) : dim(dim), row((dim + optimizer.StateFloats(dim) + 4) * 4) {
    for (uint32_t i = 0; i < dim; ++i) weights()[i] = 0.1f * static_cast<float>(i % 5) - 0.2f;
    optimizer.Start(weights(), state(), dim, 0);
    for (int i = 0; i < 4; ++i) Guard()[i] = 12345.0f;
  }
  float* weights() { return reinterpret_cast<float*>(row.data()); }
  float* state() { return weights() + dim; }
  float* Guard() { return reinterpret_cast<float*>(row.data() + row.size()) - 4; }
  void Step(const Optimizer& optimizer, const std::vector<float>& gradient, uint64_t step) {
    std::byte* rows[1] = {row.data()};
    const float* gradients[1] = {gradient.data()};
    optimizer.Step({1, dim, 0, dim * 4, 0, rows, gradients, step, 1.0f});
  }

  uint32_t dim;
  std::vector<std::byte> row;
};

void CheckElementwise(OptimizerKind kind) {
  OptimizerSettings settings;
  settings.kind = kind;
  settings.l1 = 0.05f;
  settings.initial_accumulator = 0.1f;
  const auto optimizer = MakeOptimizer(settings);
  for (const uint32_t dim : {2u, 7u, 8u, 9u, 16u, 17u, 40u}) {
    OneRow wide(*optimizer, dim);
    std::vector<OneRow> narrow;
    for (uint32_t i = 0; i < dim; ++i) {
      narrow.emplace_back(*optimizer, 1);
      narrow[i].weights()[0] = wide.weights()[i];
      optimizer->Start(narrow[i].weights(), narrow[i].state(), 1, 0);
    }
    for (uint64_t step = 1; step < 5; ++step) {
      std::vector<float> gradient(dim);
      for (uint32_t i = 0; i < dim; ++i) gradient[i] = std::sin(static_cast<float>(i * step));
      wide.Step(*optimizer, gradient, step);
      for (uint32_t i = 0; i < dim; ++i) {
        narrow[i].Step(*optimizer, {gradient[i]}, step);
        CHECK(narrow[i].weights()[0] == wide.weights()[i]);
      }
    }
    for (int i = 0; i < 4; ++i) CHECK(wide.Guard()[i] == 12345.0f);
  }
}

void CheckNoGradientNoMove(OptimizerKind kind) {
  OptimizerSettings settings;
  settings.kind = kind;
  const auto optimizer = MakeOptimizer(settings);
  OneRow row(*optimizer, 9);
  const std::vector<float> before(row.weights(), row.weights() + 9);
  row.Step(*optimizer, std::vector<float>(9, 0.0f), 1);
  for (int i = 0; i < 9; ++i) CHECK(std::fabs(row.weights()[i] - before[i]) < 1e-7f);
}

}  // namespace
}  // namespace elasticctr

int main() {
  using namespace elasticctr;
  for (const auto kind : {OptimizerKind::kSgd, OptimizerKind::kAdagrad, OptimizerKind::kAdam, OptimizerKind::kFtrl}) {
    CheckElementwise(kind);
  }
  for (const auto kind : {OptimizerKind::kSgd, OptimizerKind::kAdagrad, OptimizerKind::kRowwiseAdagrad,
                          OptimizerKind::kAdam, OptimizerKind::kFtrl}) {
    CheckNoGradientNoMove(kind);
  }
}
