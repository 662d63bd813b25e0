// One optimizer step of a block of rows, and its effect on their counters.

#include <algorithm>

#include "table/step_block.h"
#include "table/table.h"
#include "util/flush_denormals.h"
#include "util/status.h"

namespace elasticctr {
namespace {

// Clipping, L2 and the scale, in place. Called only for rows that exist.
void PrepareGradients(const StepBlock& block, const OptimizerSettings& optimizer, float scale) {
  const float l2 = optimizer.kind == OptimizerKind::kFtrl ? 0.0f : optimizer.l2;
  const float clip = optimizer.gradient_clip;
  if (l2 == 0.0f && clip == 0.0f && scale == 1.0f) return;
  for (size_t i = 0; i < block.count; ++i) {
    float* g = const_cast<float*>(block.gradients[i]) + block.column;
    const float* w = RowLayout::Floats(block.rows[i], block.weights);
    for (uint32_t j = 0; j < block.dim; ++j) {
      float value = g[j] * scale;
      if (clip > 0.0f) value = std::clamp(value, -clip, clip);
      g[j] = value + l2 * w[j];
    }
  }
}

// Moves every touched weight towards zero by at most `by`: the proximal step of L1.
void ShrinkWeights(const StepBlock& block, float by) {
  if (by == 0.0f) return;
  for (size_t i = 0; i < block.count; ++i) {
    float* w = RowLayout::Floats(block.rows[i], block.weights);
    for (uint32_t j = 0; j < block.dim; ++j) w[j] -= std::clamp(w[j], -by, by);
  }
}

void BoundWeights(const StepBlock& block, float bound) {
  if (bound == 0.0f) return;
  for (size_t i = 0; i < block.count; ++i) {
    float* w = RowLayout::Floats(block.rows[i], block.weights);
    for (uint32_t j = 0; j < block.dim; ++j) w[j] = std::clamp(w[j], -bound, bound);
  }
}

}  // namespace

void Table::CheckNow(uint32_t now) const {
  if (now >= RowLayout::kTouched) {
    throw Error(Code::kConfig, "table '" + settings_.name + "': a time of " + std::to_string(now) +
                                   " for last-seen is too large; count days, hours or steps below 2^31");
  }
}

void Table::BeginStep(float rate_scale) {
  ++steps_;
  for (const auto& optimizer : optimizers_) optimizer->Begin(steps_, rate_scale);
}

void Table::CatchUp(size_t s, std::byte* row, uint64_t step) const {
  const SegmentLayout& segment = layout_.segments()[s];
  float* weights = RowLayout::Floats(row, segment.weights);
  float* state = RowLayout::Floats(row, segment.state);
  optimizers_[s]->CatchUp(weights, state, segment.dim, step, weights, state);
}

void Table::CatchUp(std::byte* row) const {
  const FlushDenormals flush_denormals;
  for (size_t s = 0; s < optimizers_.size(); ++s) {
    if (optimizers_[s]->CatchesUp()) CatchUp(s, row, steps_);
  }
}

void Table::CopyCaughtUp(const std::byte* row, float* to) const {
  const FlushDenormals flush_denormals;
  for (size_t s = 0; s < optimizers_.size(); ++s) {
    if (!optimizers_[s]->CatchesUp()) continue;
    const SegmentLayout& segment = layout_.segments()[s];
    optimizers_[s]->CatchUp(RowLayout::Floats(row, segment.weights), RowLayout::Floats(row, segment.state), segment.dim,
                            steps_, to + segment.column, nullptr);
  }
}

// REQUIRES: at most kMaxStepRows rows.
void Table::StepRows(const RowsStep& rows) {
  const FlushDenormals flush_denormals;
  std::byte* places[kMaxStepRows];
  const float* gradients[kMaxStepRows];
  for (size_t s = 0; s < optimizers_.size(); ++s) {
    const SegmentLayout& segment = layout_.segments()[s];
    size_t active = 0;
    for (size_t i = 0; i < rows.count; ++i) {
      const bool has_gradient = rows.masks == nullptr || (rows.masks[i] >> std::min<size_t>(s, 63) & 1) != 0;
      if (rows.rows[i] == 0 || !has_gradient) continue;
      places[active] = Row(rows.rows[i]);
      gradients[active++] = rows.gradients + i * layout_.weights_dim();
    }
    const StepBlock step{active, segment.dim, segment.weights, segment.state,  segment.column,
                         places, gradients,   steps_,          rows.rate_scale};
    const OptimizerSettings& optimizer = settings_.segments[s].optimizer;
    if (optimizers_[s]->CatchesUp()) {
      for (size_t i = 0; i < active; ++i) CatchUp(s, places[i], steps_ - 1);
    }
    PrepareGradients(step, optimizer, rows.gradient_scale);
    optimizers_[s]->Step(step);
    if (optimizer.kind != OptimizerKind::kFtrl) {
      ShrinkWeights(step, optimizer.learning_rate * rows.rate_scale * optimizer.l1);
    }
    BoundWeights(step, optimizer.weight_bound);
  }
  CountRows(rows);
}

void Table::CountRows(const RowsStep& rows) {
  if (!layout_.has_counters()) {
    for (size_t i = 0; marks_.is_on() && i < rows.count; ++i) {
      if (rows.rows[i] != 0) marks_.Stamp(rows.rows[i]);
    }
    return;
  }
  for (size_t i = 0; i < rows.count; ++i) {
    if (rows.rows[i] == 0) continue;
    Counters* counters = RowLayout::MutableCounters(Row(rows.rows[i]));
    if (rows.shows != nullptr) {
      counters->show += rows.shows[i * rows.counter_stride];
      counters->click += rows.clicks[i * rows.counter_stride];
    }
    counters->last_seen = rows.seen;
  }
}

}  // namespace elasticctr
