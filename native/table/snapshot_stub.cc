#include "table/table.h"
#include "util/status.h"
namespace elasticctr {
void Table::Save(const std::string&, const std::string&) const { throw Error(Code::kInternal, "not yet"); }
void Table::Load(const std::string&) { throw Error(Code::kInternal, "not yet"); }
}  // namespace elasticctr
