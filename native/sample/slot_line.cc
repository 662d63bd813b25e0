#include "sample/slot_line.h"

#include "util/hash.h"

namespace elasticctr {

std::vector<Field> FieldsOf(const ParserSpec& spec) {
  std::vector<Field> fields;
  const auto add = [&](const std::string& name, FieldKind kind, size_t index, uint64_t seed) {
    Field field;
    field.name = name;
    field.kind = kind;
    field.index = static_cast<uint32_t>(index);
    field.seed = seed;
    fields.push_back(std::move(field));
  };
  for (size_t i = 0; i < spec.labels.size(); ++i) add(spec.labels[i], FieldKind::kLabel, i, 0);
  if (!spec.weight.empty()) add(spec.weight, FieldKind::kWeight, 0, 0);
  for (size_t i = 0; i < spec.dense.size(); ++i) add(spec.dense[i].name, FieldKind::kDense, i, 0);
  for (size_t i = 0; i < spec.sparse.size(); ++i) {
    const SparseSpec& slot = spec.sparse[i];
    add(slot.name, slot.hashed ? FieldKind::kString : FieldKind::kId, i, SlotSeed(slot.name, spec.hash_seed));
  }
  return fields;
}

SlotLine::SlotLine(const ParserSpec& spec, Columns* columns) : Line(spec, columns), fields_(FieldsOf(spec)) {}

const char* SlotLine::FindColon(const char* p, const char* end) {
  for (; p < end && !IsBlank(*p); ++p) {
    if (*p == ':') return p;
  }
  return nullptr;
}

const char* SlotLine::ReadString(const Field& field, const char* p, const char* end) {
  const char* after = FindBlank(p, end);
  if (after == p) return Reject("slot '" + field.name + "' has an empty value");
  columns_->AddValue(field.index, FeatureHash({p, static_cast<size_t>(after - p)}, field.seed));
  return after;
}

Rejected SlotLine::RejectToken(const char* p, const char* end) {
  return Reject(Quote({p, static_cast<size_t>(FindBlank(p, end) - p)}) + " is not of the form slot:value");
}

}  // namespace elasticctr
