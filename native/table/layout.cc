#include "table/layout.h"

#include <algorithm>
#include <string>

#include "util/status.h"

namespace elasticctr {

Layout::Layout(std::vector<SlotTarget> slots, std::vector<uint32_t> dims)
    : slots_(std::move(slots)), dims_(std::move(dims)) {
  for (const SlotTarget& slot : slots_) {
    const std::string where = "layout of slot " + std::to_string(slot.slot) + ": ";
    if (slot.columns.size() != dims_.size()) {
      throw Error(Code::kConfig, where + "one column per segment is needed (" + std::to_string(dims_.size()) +
                                     "), not " + std::to_string(slot.columns.size()));
    }
    if (std::all_of(slot.columns.begin(), slot.columns.end(), [](int32_t c) { return c < 0; })) {
      throw Error(Code::kConfig, where + "it uses no segment");
    }
    if (IsSequence(slot.pooling) != (slot.length > 0)) {
      throw Error(Code::kConfig, where + "a length goes with a sequence, and only with one");
    }
    slot_numbers_.push_back(slot.slot);
    targets_ = std::max<size_t>(targets_, slot.target + 1);
    has_sequences_ |= IsSequence(slot.pooling);
    is_complete_ &= std::all_of(slot.columns.begin(), slot.columns.end(), [](int32_t c) { return c >= 0; });
  }
}

void Layout::CheckTargets(const std::vector<Target>& targets, size_t samples) const {
  if (targets.size() != targets_) {
    throw Error(Code::kFailedPrecondition, "the layout names " + std::to_string(targets_) + " arrays, " +
                                               std::to_string(targets.size()) + " were given");
  }
  for (const SlotTarget& slot : slots_) {
    const Target& target = targets[slot.target];
    const std::string where = "array " + std::to_string(slot.target) + ": ";
    if (target.samples != samples) {
      throw Error(Code::kFailedPrecondition,
                  where + std::to_string(target.samples) + " samples for a batch of " + std::to_string(samples));
    }
    if (target.length != slot.length) {
      throw Error(Code::kFailedPrecondition,
                  where + "slot " + std::to_string(slot.slot) + " needs " +
                      (slot.length > 0 ? "[samples, " + std::to_string(slot.length) + ", width]"
                                       : std::string("[samples, width]")));
    }
    for (size_t s = 0; s < dims_.size(); ++s) {
      if (slot.columns[s] >= 0 && static_cast<size_t>(slot.columns[s]) + dims_[s] > target.width) {
        throw Error(Code::kFailedPrecondition, where + "slot " + std::to_string(slot.slot) + " ends at column " +
                                                   std::to_string(slot.columns[s] + dims_[s]) + " of " +
                                                   std::to_string(target.width));
      }
    }
  }
}

}  // namespace elasticctr
