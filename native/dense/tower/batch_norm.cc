#include "dense/tower/batch_norm.h"

#include <algorithm>
#include <cmath>

namespace elasticctr::dense {
namespace {

size_t Units(size_t rows) { return (rows + kSumRows - 1) / kSumRows; }

// The sum over all rows of one kind (0 or 1) of sums.
std::vector<double> Total(size_t width, size_t rows, const float* sums, size_t kind) {
  const size_t padded = Panels(width) * kPanel;
  std::vector<double> total(width);
  for (size_t unit = 0; unit < Units(rows); ++unit) {
    const float* const of = sums + (2 * unit + kind) * padded;
    for (size_t j = 0; j < width; ++j) total[j] += of[j];
  }
  return total;
}

void UseStatistics(const BatchNorm& norm, const BatchNorm::Layer& layer, size_t j, double mean, double variance,
                   NormStep& step) {
  const double inverse = 1.0 / std::sqrt(variance + norm.epsilon);
  const double scale = layer.scale[j] * inverse;
  step.mean[j] = static_cast<float>(mean);
  step.inverse_deviation[j] = static_cast<float>(inverse);
  step.scale[j] = static_cast<float>(scale);
  step.shift[j] = static_cast<float>(layer.shift[j] - mean * scale);
}

}  // namespace

void NormStep::Resize(size_t width) {
  for (auto* values : {&mean, &inverse_deviation, &scale, &shift, &along, &constant}) {
    values->assign(Panels(width) * kPanel, 0.0f);
  }
}

void UseBatch(const BatchNorm& norm, size_t layer, size_t width, size_t rows, const float* sums, NormStep& step) {
  const auto n = static_cast<double>(rows);
  const size_t padded = Panels(width) * kPanel;
  std::vector<double> mean = Total(width, rows, sums, 0), squares = Total(width, rows, sums, 1);
  for (double& value : mean) value /= n;
  // Squares were taken around the means of a few rows each; the squares around the common mean are larger.
  for (size_t unit = 0; unit < Units(rows); ++unit) {
    const float* const of = sums + 2 * unit * padded;
    const auto count = static_cast<double>(std::min(kSumRows, rows - unit * kSumRows));
    const double share = 1.0 / count;
    for (size_t j = 0; j < width; ++j) {
      const double d = of[j] * share - mean[j];
      squares[j] += count * d * d;
    }
  }
  const BatchNorm::Layer& running = norm.layers[layer];
  const double momentum = norm.momentum;
  step.Resize(width);
  for (size_t j = 0; j < width; ++j) {
    UseStatistics(norm, running, j, mean[j], squares[j] / n, step);
    const auto follow = [&](float& value, double seen) {
      value = static_cast<float>((1.0 - momentum) * value + momentum * seen);
    };
    follow(running.running_mean[j], mean[j]);
    follow(running.running_variance[j], squares[j] / (n - 1));
  }
}

void UseRunning(const BatchNorm& norm, size_t layer, size_t width, NormStep& step) {
  const BatchNorm::Layer& running = norm.layers[layer];
  step.Resize(width);
  for (size_t j = 0; j < width; ++j) {
    UseStatistics(norm, running, j, running.running_mean[j], running.running_variance[j], step);
  }
}

void FinishSlopes(size_t width, size_t rows, const float* sums, bool is_batch, NormStep& step, float* scale_gradient,
                  float* shift_gradient) {
  const std::vector<double> sum = Total(width, rows, sums, 0), along = Total(width, rows, sums, 1);
  const double share = is_batch ? 1.0 / static_cast<double>(rows) : 0.0;
  for (size_t j = 0; j < width; ++j) {
    const double inverse = step.inverse_deviation[j];
    scale_gradient[j] = static_cast<float>(along[j] * inverse);
    shift_gradient[j] = static_cast<float>(sum[j]);
    step.along[j] = static_cast<float>(-share * step.scale[j] * along[j] * inverse * inverse);
    step.constant[j] = static_cast<float>(-share * step.scale[j] * sum[j]);
  }
}

}  // namespace elasticctr::dense
