// Rows of one version from cube files open in this process. The version stays readable as long as the source.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cube/server/store.h"
#include "serve/version/plan.h"
#include "serve/version/version.h"

namespace elasticctr::serve {

// `stores` are all shards, in order, and hold `version` of `model`. Throws NotFound (a table or the version is
// missing), FailedPrecondition (not all shards, or the row widths differ from the tables').
std::shared_ptr<const RowSource> MakeLocalRows(const std::vector<const cube::Store*>& stores, const std::string& model,
                                               uint64_t version, const std::vector<TablePlan>& tables);

}  // namespace elasticctr::serve
