#include "sample/field.h"

#include "util/hash.h"

namespace elasticctr {

FieldIndex::FieldIndex(std::vector<Field> fields) : fields_(std::move(fields)) {
  size_t buckets = 8;
  while (buckets < fields_.size() * 4) buckets *= 2;
  buckets_.resize(buckets);
  for (Field& field : fields_) {
    field.length = static_cast<uint32_t>(field.name.size());
    char head[16] = {}, mask[16] = {};
    for (size_t i = 0; i < 16 && i < field.name.size(); ++i) {
      head[i] = field.name[i];
      mask[i] = '\xFF';
    }
    for (int i = 0; i < 2; ++i) {
      field.words[i] = DecodeFixed64(head + 8 * i);
      field.masks[i] = DecodeFixed64(mask + 8 * i);
    }
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
