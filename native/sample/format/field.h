// Fast lookup of slot names: a log repeats the same slots in the same order, so each line is first matched against the
// previous one, and names are hashed only if that fails.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "sample/format/number.h"
#include "sample/spec.h"

namespace elasticctr {

// What a name in the text refers to.
enum class FieldKind : uint8_t { kLabel, kWeight, kDense, kId, kString };

struct Field {
  std::string name;
  FieldKind kind = FieldKind::kId;
  uint32_t index = 0;  // of the label, the dense slot or the sparse slot
  uint64_t seed = 0;   // of the feature hash, for kString

  // The text a field starts with: the name and, in some formats, a colon. The first 16 bytes, and a mask of the bits
  // that count.
  std::string key;
  uint64_t words[2] = {0, 0};
  uint64_t masks[2] = {0, 0};
  uint32_t length = 0;  // of the key

  Field* next = nullptr;  // the field that followed last time; a guess, never nullptr in an index

  // Whether the text at `p` starts with the key. REQUIRES: kLookahead readable bytes and p < end.
  ELASTICCTR_INLINE bool Matches(const char* p, const char* end) const {
    const uint64_t difference =
        ((DecodeFixed64(p) ^ words[0]) & masks[0]) | ((DecodeFixed64(p + 8) ^ words[1]) & masks[1]);
    if (difference != 0) return false;
    if (length <= 16) [[likely]]
      return true;
    return static_cast<size_t>(end - p) >= length && std::memcmp(p, key.data(), length) == 0;
  }
};

// Every name of a schema, as slot-like formats look them up.
std::vector<Field> FieldsOf(const ParserSpec& spec);

class FieldIndex {
 public:
  // `after` follows the name in the text and belongs to the key.
  // REQUIRES: names are distinct, not empty and free of blanks and line ends.
  explicit FieldIndex(std::vector<Field> fields, std::string_view after = "");
  FieldIndex(const FieldIndex&) = delete;
  FieldIndex& operator=(const FieldIndex&) = delete;

  // The field of that name, or nullptr.
  Field* Find(std::string_view name);
  // A field that matches nothing: the predecessor of a line's first field, and the guess if there is none.
  Field* nobody() { return &nobody_; }

 private:
  std::vector<Field> fields_;
  std::vector<Field*> buckets_;  // open addressing, a power of two of them
  Field nobody_;
};

}  // namespace elasticctr
