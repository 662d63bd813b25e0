#include "dense/tower/step.h"

#include <algorithm>
#include <vector>

#include "dense/bce.h"

namespace elasticctr::dense {
namespace {

float WideLogit(const Wide& wide, const float* x) {
  float sum = *wide.bias;
  for (size_t j = 0; j < wide.count; ++j) sum += wide.weights[j] * x[wide.first + j];
  return sum;
}

// Adds up per unit of rows, in order.
void SumUnits(const std::vector<float>& sums, size_t units, size_t width, float* to) {
  std::fill_n(to, width, 0.0f);
  for (size_t u = 0; u < units; ++u) {
    for (size_t j = 0; j < width; ++j) to[j] += sums[u * width + j];
  }
}

}  // namespace

double TowerStep(const Tower& tower, Rows x, size_t rows, const float* const* weights, const float* const* biases,
                 const Hidden& hidden, const Wide& wide, const Samples& samples, float* logits,
                 const TowerGradients& gradients, Workspace& workspace) {
  constexpr size_t kUnit = kBlockUnit;
  const size_t units = (rows + kUnit - 1) / kUnit;
  const size_t width = wide.count + 1;  // sums of the wide gradients of a unit of rows, the bias last
  std::vector<float> logit_gradients(rows), sums(wide.count > 0 ? units * width : 0);
  std::vector<double> losses(units);
  const auto finish_unit = [&](size_t first, size_t count) {
    float* const g = logit_gradients.data() + first;
    if (wide.count > 0) {
      for (size_t i = 0; i < count; ++i) logits[first + i] += WideLogit(wide, x.data + (first + i) * x.stride);
    }
    losses[first / kUnit] = BceGradient(logits + first, samples.labels + first * samples.label_stride,
                                        samples.label_stride, samples.weights + first, count, rows, g);
    if (wide.count == 0) return;
    float* const sum = sums.data() + first / kUnit * width;
    for (size_t i = 0; i < count; ++i) {
      const float* row = x.data + (first + i) * x.stride + wide.first;
      for (size_t j = 0; j < wide.count; ++j) sum[j] += g[i] * row[j];
      sum[wide.count] += g[i];
    }
  };
  const Tower::Finish finish = [&](size_t first, size_t count) {
    for (size_t done = 0; done < count; done += kUnit) finish_unit(first + done, std::min(kUnit, count - done));
  };
  tower.Forward(x, rows, weights, biases, hidden, {logits, 1}, workspace, true, finish);
  if (wide.count > 0) {
    std::vector<float> total(width);
    SumUnits(sums, units, width, total.data());
    std::copy_n(total.data(), wide.count, wide.weight_gradients);
    *wide.bias_gradient = total[wide.count];
  }
  tower.Backward({logit_gradients.data(), 1}, weights, gradients, workspace);
  double loss = 0.0;
  for (const double part : losses) loss += part;
  return loss;
}

}  // namespace elasticctr::dense
