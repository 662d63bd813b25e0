#include "bindings/bindings.h"

namespace elasticctr {

void BindMetric(nanobind::module_&) {}

}  // namespace elasticctr
