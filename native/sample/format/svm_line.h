// The libsvm format, `label index:value …`, and the libffm format, `label field:feature:value …`, separated by blanks.
// A label of -1 reads as 0. A sparse slot keeps the features whose value is not 0; a dense slot keeps values. `#`
// starts a comment.
#pragma once

#include "sample/format/line.h"

namespace elasticctr {

class SvmLine : public Line {
 protected:
  using Line::Line;

  // Reads the label at the start of a line. Returns the byte after it, or nullptr.
  const char* ReadFirstLabel(const char* p, const char* end);
  // Reads `:value` at `p`. Returns the byte after it, or nullptr.
  const char* ReadFeatureValue(const char* token, const char* p, const char* end, double* value);
  Rejected RejectFeature(const char* p, const char* end, const char* form);
};

// Indices 1 to D fill the schema's dense slots in order, D dimensions in all. The others are feasigns of the single
// sparse slot, or are skipped if there is none.
class LibsvmLine : public SvmLine {
 public:
  // Throws kConfig if the schema has more than one sparse slot.
  LibsvmLine(const ParserSpec& spec, Columns* columns);

  bool Parse(const char* p, const char* end);

 private:
  struct Dimension {
    const Dense* slot;
    uint32_t index;
  };

  std::vector<Dimension> dimensions_;
  std::vector<Field> sparse_;  // none or one
};

// The slot's name is the field's text. A sparse slot takes features, a dense slot one value per dimension.
class LibffmLine : public SvmLine {
 public:
  LibffmLine(const ParserSpec& spec, Columns* columns);

  bool Parse(const char* p, const char* end);

 private:
  // Reads feature:value at `p`, the part of `token` after the slot's name.
  const char* ReadFeature(const Field& field, const char* token, const char* p, const char* end);

  FieldIndex fields_;
};

}  // namespace elasticctr
