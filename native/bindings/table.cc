#include "bindings/bindings.h"

namespace elasticctr {

void BindTable(nanobind::module_&) {}

}  // namespace elasticctr
