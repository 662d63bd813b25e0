#include "table/pull_kernels.h"
#include "table/table.h"

namespace elasticctr {

void Table::Pull(const Lookup& lookup, const Layout& layout, const std::vector<Target>& targets) const {
  std::shared_lock reading(mutex_);
  CheckFound(lookup, layout);
  layout.CheckTargets(targets, lookup.samples());
  if (layout.slots().empty()) return;
  const Source<true> source{arena_.base() + layout_.weights_offset(), layout_.stride(),
                            PrefetchLines(layout_.stride(), layout_.weights_dim()), lookup, lookup.rows()};
  PullAll(source, layout_.segments(), layout, targets);
}

}  // namespace elasticctr
