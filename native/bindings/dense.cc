#include "bindings/bindings.h"

namespace elasticctr {

void BindDense(nanobind::module_&) {}

}  // namespace elasticctr
