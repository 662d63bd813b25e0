#include "table/settings.h"

#include <cmath>

#include "util/status.h"

namespace elasticctr {
namespace {

constexpr uint32_t kMaxDim = 65536;
constexpr uint32_t kMaxCount = 65535;
constexpr uint32_t kMaxCatchUp = 1u << 16;

[[noreturn]] void Refuse(const TableSettings& table, const std::string& what) {
  throw Error(Code::kConfig, "table '" + table.name + "': " + what);
}

void CheckOptimizer(const TableSettings& table, const SegmentSettings& segment) {
  const OptimizerSettings& o = segment.optimizer;
  const std::string where = "segment '" + segment.name + "': optimizer " + OptimizerName(o.kind) + ": ";
  const auto is_valid = [](float x) { return std::isfinite(x) && x >= 0.0f; };
  if (!is_valid(o.learning_rate) || o.learning_rate == 0.0f) Refuse(table, where + "learning_rate must be above 0");
  if (!is_valid(o.l1) || !is_valid(o.l2)) Refuse(table, where + "l1 and l2 must be 0 or above");
  if (!is_valid(o.epsilon) || !is_valid(o.beta) || !is_valid(o.initial_accumulator)) {
    Refuse(table, where + "epsilon, beta and initial_accumulator must be 0 or above");
  }
  if (!(o.beta1 >= 0.0f && o.beta1 < 1.0f && o.beta2 >= 0.0f && o.beta2 < 1.0f)) {
    Refuse(table, where + "beta1 and beta2 must be at least 0 and below 1");
  }
  if (!is_valid(o.gradient_clip) || !is_valid(o.weight_bound)) {
    Refuse(table, where + "gradient_clip and weight_bound must be 0 (none) or above");
  }
  if (o.catch_up == 0) return;
  if (o.kind != OptimizerKind::kAdam) Refuse(table, where + "only adam has catch_up");
  if (o.catch_up > kMaxCatchUp) Refuse(table, where + "catch_up must be 0 (none) to 65536");
  if (o.epsilon == 0.0f) Refuse(table, where + "catch_up needs an epsilon above 0");
}

}  // namespace

const char* OptimizerName(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd: return "sgd";
    case OptimizerKind::kAdagrad: return "adagrad";
    case OptimizerKind::kRowwiseAdagrad: return "rowwise_adagrad";
    case OptimizerKind::kAdam: return "adam";
    case OptimizerKind::kFtrl: return "ftrl";
  }
  return "unknown";
}

void TableSettings::Check() const {
  if (segments.empty()) Refuse(*this, "needs at least one segment");
  for (size_t i = 0; i < segments.size(); ++i) {
    const SegmentSettings& segment = segments[i];
    if (segment.name.empty()) Refuse(*this, "a segment needs a name");
    for (size_t j = 0; j < i; ++j) {
      if (segments[j].name == segment.name) Refuse(*this, "segment '" + segment.name + "' is declared twice");
    }
    if (segment.dim < 1 || segment.dim > kMaxDim) {
      Refuse(*this, "segment '" + segment.name + "': dim must be 1 to 65536, not " + std::to_string(segment.dim));
    }
    if (!std::isfinite(segment.initializer.a) || !std::isfinite(segment.initializer.b)) {
      Refuse(*this, "segment '" + segment.name + "': initial values must be finite");
    }
    CheckOptimizer(*this, segment);
  }
  if (admission.count < 1 || admission.count > kMaxCount) {
    Refuse(*this, "admission count must be 1 to 65535, not " + std::to_string(admission.count));
  }
  if (!(admission.probability > 0.0 && admission.probability <= 1.0)) {
    Refuse(*this, "admission probability must be above 0 and at most 1");
  }
  if (admission.count > 1 && admission.probability < 1.0) {
    Refuse(*this, "admission goes by count or by probability, not both");
  }
}

}  // namespace elasticctr
