#include "sample/format/svm_line.h"

#include "util/hash.h"
#include "util/status.h"

namespace elasticctr {
namespace {

std::vector<Field> SlotFieldsOf(const ParserSpec& spec) {
  ParserSpec slots = spec;
  slots.labels.clear();
  return FieldsOf(slots);
}

std::string_view TokenAt(const char* p, const char* end) { return {p, static_cast<size_t>(FindBlank(p, end) - p)}; }

}  // namespace

const char* SvmLine::ReadFirstLabel(const char* p, const char* end) {
  p = SkipBlanks(p, end);
  const std::string_view token = TokenAt(p, end);
  if (token == "-1") {
    *columns_->labels() = 0;
    return p + 2;
  }
  if (!require_label_ && token.find(':') != std::string_view::npos) return p;
  const char* after = ReadLabel(0, p, end);
  if (after != nullptr && !IsTokenEnd(after, end)) return RejectLabel(0, p, end);
  return after;
}

const char* SvmLine::ReadFeatureValue(const char* token, const char* p, const char* end, double* value) {
  const char* after = p < end && *p == ':' ? ReadDouble(p + 1, end, value) : nullptr;
  if (after == nullptr || !IsTokenEnd(after, end) || !__builtin_isfinite(*value)) {
    return Reject(Quote(TokenAt(token, end)) + " does not end with a colon and a finite number");
  }
  return after;
}

Rejected SvmLine::RejectFeature(const char* p, const char* end, const char* form) {
  return Reject(Quote(TokenAt(p, end)) + " is not of the form " + form);
}

LibsvmLine::LibsvmLine(const ParserSpec& spec, Columns* columns) : SvmLine(spec, columns) {
  if (spec.sparse.size() > 1) {
    throw Error(Code::kConfig, "format libsvm has one sparse slot, which takes all indices; the schema has " +
                                   std::to_string(spec.sparse.size()));
  }
  for (const Dense& slot : dense_) {
    for (uint32_t i = 0; i < slot.dim; ++i) dimensions_.push_back({&slot, i});
  }
  for (Field& field : SlotFieldsOf(spec)) {
    if (field.kind != FieldKind::kDense) sparse_.push_back(std::move(field));
  }
}

bool LibsvmLine::Parse(const char* p, const char* end) {
  p = ReadFirstLabel(p, end);
  if (p == nullptr) return false;
  for (;;) {
    p = SkipBlanks(p, end);
    if (p == end || *p == '#') return Finish();
    uint64_t index;
    const char* colon = ReadU64(p, &index);
    if (colon == nullptr || *colon != ':') return RejectFeature(p, end, "index:value");
    double value;
    const char* after = ReadFeatureValue(p, colon, end, &value);
    if (after == nullptr) return false;
    if (index == 0 && !dimensions_.empty()) {
      return Reject("index 0 among dense values, which are counted from 1");
    }
    if (index <= dimensions_.size() && index > 0) {
      const Dimension& dimension = dimensions_[index - 1];
      if (!PutDense(*dimension.slot, dimension.index, value)) return RejectDense(*dimension.slot, colon + 1, end);
    } else if (!sparse_.empty() && value != 0) {
      const bool is_id = sparse_[0].kind == FieldKind::kId;
      columns_->AddValue(0, is_id ? index : FeatureHash({p, static_cast<size_t>(colon - p)}, sparse_[0].seed));
    }
    p = after;
  }
}

LibffmLine::LibffmLine(const ParserSpec& spec, Columns* columns)
    : SvmLine(spec, columns), fields_(SlotFieldsOf(spec), ":") {}

bool LibffmLine::Parse(const char* p, const char* end) {
  Begin();
  p = ReadFirstLabel(p, end);
  if (p == nullptr) return false;
  Field* last = fields_.nobody();
  for (;;) {
    p = SkipBlanks(p, end);
    if (p == end || *p == '#') return Finish();
    Field* field = last->next;
    if (!field->Matches(p, end)) {
      const std::string_view token = TokenAt(p, end);
      const size_t colon = token.find(':');
      if (colon == std::string_view::npos) return RejectFeature(p, end, "field:feature:value");
      field = fields_.Find(token.substr(0, colon));
      if (field == nullptr) {
        p += token.size();
        continue;
      }
      last->next = field;
    }
    p = ReadFeature(*field, p, p + field->length, end);
    if (p == nullptr) return false;
    last = field;
  }
}

const char* LibffmLine::ReadFeature(const Field& field, const char* token, const char* p, const char* end) {
  const char* colon = p;
  uint64_t feasign = 0;
  if (field.kind == FieldKind::kId) {
    colon = ReadU64(p, &feasign);
    if (colon == nullptr) return RejectId(field.index, p, end);
  } else {
    const std::string_view rest = TokenAt(p, end);
    const size_t at = rest.rfind(':');
    if (at == std::string_view::npos) return RejectFeature(token, end, "field:feature:value");
    colon = p + at;
    feasign = FeatureHash(rest.substr(0, at), field.seed);
  }
  if (field.kind == FieldKind::kDense) {
    const char* after = ReadDense(field.index, colon + 1, end);
    if (after != nullptr && !IsTokenEnd(after, end)) return RejectJunk(field.name, after, end);
    return after;
  }
  double value;
  const char* after = ReadFeatureValue(token, colon, end, &value);
  if (after != nullptr && value != 0) columns_->AddValue(field.index, feasign);
  return after;
}

}  // namespace elasticctr
