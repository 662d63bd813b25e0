#include "bindings/bindings.h"

namespace elasticctr {

void BindSample(nanobind::module_&) {}

}  // namespace elasticctr
