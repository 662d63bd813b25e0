// Rows of one version out of cube files that this process has open. The version stays readable as long as the source.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cube/server/store.h"
#include "serve/version/plan.h"
#include "serve/version/version.h"

namespace elasticctr::serve {

// `stores` are all shards, in order, and hold `version` of `model`. Throws NotFound (a table or the version is not
// there), FailedPrecondition (not all shards, or rows of another width than the tables').
std::shared_ptr<const RowSource> MakeLocalRows(const std::vector<const cube::Store*>& stores, const std::string& model,
                                               uint64_t version, const std::vector<TablePlan>& tables);

}  // namespace elasticctr::serve
