#include "sample/format/line.h"

#include <cmath>

namespace elasticctr {
namespace {

constexpr size_t kQuoted = 40;

std::string_view Token(const char* p, const char* end) { return {p, static_cast<size_t>(FindBlank(p, end) - p)}; }

}  // namespace

std::string Quote(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text.substr(0, kQuoted)) {
    if (c >= 0x20 && c < 0x7F && c != '\\') {
      quoted += c;
    } else {
      constexpr char kHex[] = "0123456789abcdef";
      quoted += "\\x";
      quoted += kHex[static_cast<uint8_t>(c) >> 4];
      quoted += kHex[static_cast<uint8_t>(c) & 15];
    }
  }
  return quoted + (text.size() > kQuoted ? "…'" : "'");
}

const std::array<float, Line::kLog1pTable>& Line::Log1pTable() {
  static const auto table = [] {
    std::array<float, kLog1pTable> values;
    for (size_t i = 0; i < kLog1pTable; ++i) values[i] = Log1p(static_cast<double>(i));
    return values;
  }();
  return table;
}

Line::Line(const ParserSpec& spec, Columns* columns)
    : columns_(columns), spec_(spec), label_count_(spec.labels.size()), require_label_(spec.require_label) {
  uint32_t offset = 0;
  for (const auto& slot : spec.dense) {
    dense_.push_back({slot.dim, 0, offset, slot.transform, slot.missing(), &slot});
    offset += slot.dim;
  }
}

const char* Line::ReadWeight(const char* p, const char* end) {
  double value;
  const char* after = ReadDouble(p, end, &value);
  if (after == nullptr || !(value >= 0) || !std::isfinite(static_cast<float>(value))) {
    return Reject("weight " + Quote(Token(p, end)) + " is not a number of 0 or more");
  }
  float* weight = columns_->weight();
  if (*weight == *weight) return Reject("weight '" + spec_.weight + "' is given twice");
  *weight = static_cast<float>(value);
  return after;
}

Rejected Line::Reject(std::string reason) {
  reason_ = std::move(reason);
  return {};
}

Rejected Line::RejectMissingLabel(size_t index) { return Reject("there is no label '" + spec_.labels[index] + "'"); }

Rejected Line::RejectDenseCount(const Dense& dense) {
  return Reject("dense slot '" + dense.spec->name + "' has " + std::to_string(dense.count) + " values, not " +
                std::to_string(dense.dim));
}

Rejected Line::RejectLabel(size_t index, const char* p, const char* end) {
  return Reject("label '" + spec_.labels[index] + "' is " + Quote(Token(p, end)) + ", not a number from 0 to 1");
}

Rejected Line::RejectSecondLabel(size_t index) { return Reject("label '" + spec_.labels[index] + "' is given twice"); }

Rejected Line::RejectDense(const Dense& dense, const char* p, const char* end) {
  if (dense.count == dense.dim) {
    return Reject("dense slot '" + dense.spec->name + "' has more than " + std::to_string(dense.dim) + " values");
  }
  return Reject("dense slot '" + dense.spec->name + "' has " + Quote(Token(p, end)) + ", not a finite number");
}

Rejected Line::RejectId(uint32_t slot, const char* p, const char* end) {
  return Reject("slot '" + spec_.sparse[slot].name + "' has " + Quote(Token(p, end)) +
                ", not a feasign (an integer from 0 to 2^64 - 1); values: string would hash it");
}

Rejected Line::RejectJunk(std::string_view name, const char* p, const char* end) {
  return Reject("'" + std::string(name) + "' is followed by " + Quote(Token(p, end)) + ", not by a value and a blank");
}

}  // namespace elasticctr
