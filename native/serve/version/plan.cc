#include "serve/version/plan.h"

#include <atomic>

#include "util/hash.h"
#include "util/status.h"

namespace elasticctr::serve {
namespace {

[[noreturn]] void Refuse(const std::string& message) {
  throw Error(Code::kConfig, "schema.json does not fit together: " + message);
}

bool Fits(uint32_t first, uint32_t count, uint32_t width) { return count <= width && first <= width - count; }

void CheckSlot(const Plan& plan, const std::string& name, const SparsePlan& slot) {
  if (slot.table == SparsePlan::kUnused) return;
  if (slot.table >= plan.tables.size()) Refuse("slot '" + name + "' is of a table that is not there");
  const TablePlan& table = plan.tables[slot.table];
  if (slot.pooling == Pooling::kNone) {
    if (slot.input.empty() || slot.lengths.empty()) Refuse("sequence '" + name + "' has no input");
    if (slot.dim == 0 || slot.max_values == 0) Refuse("sequence '" + name + "' is empty");
    if (!Fits(slot.row, slot.dim, table.dim)) Refuse("sequence '" + name + "' reads past the rows of " + table.name);
    return;
  }
  for (const Piece& piece : slot.pieces) {
    if (!Fits(piece.row, piece.dim, table.dim)) Refuse("slot '" + name + "' reads past the rows of " + table.name);
    if (!Fits(piece.column, piece.dim, plan.pooled_width)) {
      Refuse("slot '" + name + "' is wider than the input 'pooled'");
    }
  }
}

}  // namespace

void Plan::Seal() {
  static std::atomic<uint64_t> last_number{0};
  if (derived.slots().size() > 0 && derived.sparse() != spec.sparse.size()) Refuse("derived slots of other samples");
  if (sparse.size() != spec.sparse.size() + derived.slots().size()) Refuse("not one lookup per slot");
  if (dense_columns.size() != spec.dense.size()) Refuse("not one column per dense slot");
  if (labels.empty()) Refuse("there is no label");
  for (const TablePlan& table : tables) {
    if (table.dim == 0) Refuse("rows of table '" + table.name + "' are empty");
  }
  names.clear();
  hash_seeds.clear();
  for (uint32_t i = 0; i < spec.sparse.size(); ++i) {
    const std::string& name = spec.sparse[i].name;
    CheckSlot(*this, name, sparse[i]);
    if (!names.emplace(name, SlotName{false, i}).second) Refuse("slot '" + name + "' is there twice");
    hash_seeds.push_back(SlotSeed(spec.sparse[i].hash_name(), spec.hash_seed));
  }
  for (uint32_t i = 0; i < dense_columns.size(); ++i) {
    const DenseSpec& slot = spec.dense[i];
    if (dense_width > 0 && !Fits(dense_columns[i], slot.dim, dense_width)) {
      Refuse("dense slot '" + slot.name + "' is wider than the input 'dense'");
    }
    if (!slot.is_whole()) {
      Refuse("dense slot '" + slot.name + "' needs one min and one diff per dimension");
    }
    if (!names.emplace(slot.name, SlotName{true, i}).second) Refuse("slot '" + slot.name + "' is there twice");
  }
  for (size_t i = 0; i < derived.slots().size(); ++i) {
    CheckSlot(*this, derived.slots()[i].name(), sparse[spec.sparse.size() + i]);
  }
  missing_dense = spec.missing_dense();
  spec.require_label = false;
  number = last_number.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace elasticctr::serve
