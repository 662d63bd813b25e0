#include "table/optimizer/optimizer.h"

#include "table/optimizer/adagrad.h"
#include "table/optimizer/adam.h"
#include "table/optimizer/catch_up_adam.h"
#include "table/optimizer/ftrl.h"
#include "table/optimizer/rowwise_adagrad.h"
#include "table/optimizer/sgd.h"
#include "util/status.h"

namespace elasticctr {

void Optimizer::Begin(uint64_t, float) {}
void Optimizer::CatchUp(const float*, const float*, size_t, uint64_t, float*, float*) const {}
void Optimizer::SetStep(float*, size_t, uint64_t) const {}

std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerSettings& settings) {
  switch (settings.kind) {
    case OptimizerKind::kSgd: return std::make_unique<Sgd>(settings);
    case OptimizerKind::kAdagrad: return std::make_unique<Adagrad>(settings);
    case OptimizerKind::kRowwiseAdagrad: return std::make_unique<RowwiseAdagrad>(settings);
    case OptimizerKind::kAdam:
      if (settings.catch_up > 0) return std::make_unique<CatchUpAdam>(settings);
      return std::make_unique<Adam>(settings);
    case OptimizerKind::kFtrl: return std::make_unique<Ftrl>(settings);
  }
  throw Error(Code::kInternal, "unknown optimizer");
}

}  // namespace elasticctr
