// Rows of one version from the servers of a Cube. Every lookup names the version, so rows of different versions are
// never mixed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cube/client/client.h"
#include "serve/version/plan.h"
#include "serve/version/version.h"

namespace elasticctr::serve {

// clients[i] knows the servers of tables[i]; tables of one client are looked up together. Failures that the policy
// allows give zeros and are noted in `trouble`: shards that did not answer are dead, and on a timeout, late. A version
// or table that the servers do not hold is always an error.
std::shared_ptr<const RowSource> MakeCubeRows(std::vector<std::shared_ptr<cube::Client>> clients,
                                              const std::string& model, uint64_t version,
                                              const std::vector<TablePlan>& tables, const Policy& policy);

}  // namespace elasticctr::serve
