#include "sample/format/number.h"

#include <limits>

namespace elasticctr {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// std::from_chars reports numbers as out of range if they are too large or too close to zero. The position of the first
// non-zero digit relative to the decimal point tells which.
bool IsTiny(const char* p, const char* end) {
  int64_t magnitude = 0;
  bool is_fraction = false, is_leading = true;
  for (; p < end && (*p | 0x20) != 'e'; ++p) {
    if (*p == '.') {
      is_fraction = true;
      continue;
    }
    is_leading = is_leading && !(*p >= '1' && *p <= '9');
    if (is_fraction && is_leading) --magnitude;
    if (!is_fraction && !is_leading) ++magnitude;
  }
  if (p == end) return magnitude < 0;
  int64_t exponent = 0;
  const bool is_negative = ++p < end && *p == '-';
  if (p < end && !IsDigit(*p)) ++p;
  for (; p < end && exponent < (int64_t{1} << 40); ++p) exponent = exponent * 10 + (*p - '0');
  return magnitude < (is_negative ? exponent : -exponent);
}

}  // namespace

const char* ReadDoubleSlowly(const char* p, const char* end, double* out) {
  if (p < end && *p == '+') {
    ++p;
    if (p == end || *p == '-') return nullptr;
  }
  const char* first = p < end && *p == '-' ? p + 1 : p;
  const bool is_number = first < end && (IsDigit(*first) || (*first == '.' && first + 1 < end && IsDigit(first[1])));
  if (!is_number) return nullptr;
  double value = 0;
  const auto [after, error] = std::from_chars(p, end, value);
  if (error == std::errc::result_out_of_range) {
    value = IsTiny(p, after) ? 0.0 : std::numeric_limits<double>::infinity();
    if (*p == '-') value = -value;
  }
  *out = value;
  return after;
}

}  // namespace elasticctr
