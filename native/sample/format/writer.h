// Columnar samples → text lines, the inverse of the parsers. Feasigns are written in full, floats in the
// shortest form that reads back to the same float32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace elasticctr {

enum class LineFormat : uint8_t { kSlot, kFeasign, kCriteo, kLibsvm, kLibffm };

// Throws ConfigError for a name that is not a text format.
LineFormat LineFormatOf(std::string_view name);

struct LineSlot {
  std::string name;
  bool dense = false;
  size_t dim = 1;    // floats per sample of a dense slot
  bool hex = false;  // a sparse value is written as the 8 hex digits of its low 32 bits, as in Criteo's logs
};

struct LineLayout {
  LineFormat format = LineFormat::kSlot;
  std::vector<std::string> labels;
  std::string weight;  // the slot of the sample weight; empty: not written
  std::vector<LineSlot> slots;
};

// Borrowed columns as data/batch.py lays them out. Offsets are in int32 and start anywhere.
struct LineColumns {
  size_t samples = 0;
  std::span<const float> labels;     // [samples * labels]
  std::span<const float> dense;      // [samples * dense_dim]; NaN: missing, written as an empty Criteo cell
  std::span<const uint64_t> values;  // all sparse slots, slot after slot
  std::span<const int32_t> offsets;  // [sparse slots * samples + 1]
  std::span<const float> weights;    // [samples]
  std::span<const float> shows;      // [samples], written by the feasign format only
};

// Writes one line per sample to the start of `out` and returns the number of bytes written. `out` grows as needed and
// never shrinks, so reusing it allocates no memory. Throws DataError if the format cannot represent a sample: several
// values of a slot or a fraction in Criteo, a feasign among libsvm's dense indices, a dense value that is not finite.
size_t WriteLines(const LineLayout& layout, const LineColumns& columns, std::string* out);

// feasigns[i] = FeatureHash(8 hex digits of codes[i], slot_seed): the feasign that a parser reads from the hex form.
void HashHexCodes(std::span<const uint64_t> codes, uint64_t slot_seed, uint64_t* feasigns);

}  // namespace elasticctr
