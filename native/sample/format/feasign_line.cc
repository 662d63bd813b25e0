#include "sample/format/feasign_line.h"

#include <cmath>

#include "util/hash.h"
#include "util/status.h"

namespace elasticctr {
namespace {

std::vector<Field> SparseFieldsOf(const ParserSpec& spec) {
  ParserSpec sparse;
  sparse.sparse = spec.sparse;
  sparse.hash_seed = spec.hash_seed;
  return FieldsOf(sparse);
}

}  // namespace

FeasignLine::FeasignLine(const ParserSpec& spec, Columns* columns)
    : Line(spec, columns), fields_(SparseFieldsOf(spec)) {
  if (!spec.dense.empty()) {
    throw Error(Code::kConfig, "format feasign has no dense slots; the schema has '" + spec.dense[0].name + "'");
  }
}

const char* FeasignLine::ReadShowAndClick(const char* p, const char* end) {
  p = SkipBlanks(p, end);
  double show;
  const char* after = ReadDouble(p, end, &show);
  if (after == nullptr || !IsTokenEnd(after, end) || !(show >= 0) || !std::isfinite(static_cast<float>(show))) {
    return Reject("show is " + Quote({p, static_cast<size_t>(FindBlank(p, end) - p)}) + ", not a number of 0 or more");
  }
  *columns_->show() = static_cast<float>(show);
  p = SkipBlanks(after, end);
  if (p == end) return RejectMissingLabel(0);
  after = ReadLabel(0, p, end);
  if (after != nullptr && !IsTokenEnd(after, end)) return RejectLabel(0, p, end);
  return after;
}

FeasignLine::Slow FeasignLine::ReadSlowly(const char** p, const char* end) {
  const char* after = FindBlank(*p, end);
  const std::string_view token(*p, static_cast<size_t>(after - *p));
  const size_t colon = token.rfind(':');
  if (colon == std::string_view::npos || colon == 0) {
    return {!Reject(Quote(token) + " is not of the form feasign:slot"), nullptr};
  }
  Field* field = fields_.Find(token.substr(colon + 1));
  if (field != nullptr && field->kind == FieldKind::kString) {
    AddString(*field, *p, *p + colon);
  } else if (field != nullptr) {
    const char* digits_end = ReadId(field->index, *p, end);
    if (digits_end == nullptr) return {true, field};
    if (digits_end != *p + colon) return {!RejectId(field->index, *p, end), field};
  }
  *p = after;
  return {false, field};
}

void FeasignLine::AddString(const Field& field, const char* p, const char* after) {
  columns_->AddValue(field.index, FeatureHash({p, static_cast<size_t>(after - p)}, field.seed));
}

}  // namespace elasticctr
