#include "sample/format/field.h"

#include "util/hash.h"

namespace elasticctr {
namespace {

void SetKey(Field* field) {
  field->length = static_cast<uint32_t>(field->key.size());
  char head[16] = {}, mask[16] = {};
  for (size_t i = 0; i < 16 && i < field->key.size(); ++i) {
    head[i] = field->key[i];
    mask[i] = '\xFF';
  }
  for (int i = 0; i < 2; ++i) {
    field->words[i] = DecodeFixed64(head + 8 * i);
    field->masks[i] = DecodeFixed64(mask + 8 * i);
  }
}

}  // namespace

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
    add(slot.name, slot.hashed ? FieldKind::kString : FieldKind::kId, i, SlotSeed(slot.hash_name(), spec.hash_seed));
  }
  return fields;
}

FieldIndex::FieldIndex(std::vector<Field> fields, std::string_view after) : fields_(std::move(fields)) {
  nobody_.key = "\n";
  SetKey(&nobody_);
  nobody_.next = &nobody_;
  size_t buckets = 8;
  while (buckets < fields_.size() * 4) buckets *= 2;
  buckets_.resize(buckets);
  for (Field& field : fields_) {
    field.key = field.name + std::string(after);
    SetKey(&field);
    field.next = &nobody_;
    size_t bucket = Xxh64(field.name.data(), field.name.size(), 0);
    while (buckets_[bucket & (buckets - 1)] != nullptr) ++bucket;
    buckets_[bucket & (buckets - 1)] = &field;
  }
}

Field* FieldIndex::Find(std::string_view name) {
  for (size_t bucket = Xxh64(name.data(), name.size(), 0);; ++bucket) {
    Field* field = buckets_[bucket & (buckets_.size() - 1)];
    if (field == nullptr || field->name == name) return field;
  }
}

}  // namespace elasticctr
