// The saved form of SegmentMetrics: a fixed head, the values kept, and a checksum over all of it.
#include "metric/segment_metrics.h"
#include "metric/state_coding.h"
#include "util/crc32c.h"
#include "util/status.h"

namespace elasticctr::metric {
namespace {

constexpr uint32_t kMagic = 0x4d534345;  // "ECSM"
constexpr uint32_t kFormat = 1;
constexpr size_t kHead = 4 + 4 + 8 + 4 + 8 + 8 + 8;
constexpr size_t kRow = 4 * 8 + 5 * 16;
constexpr uint32_t kMaxLevel = 63;

void Check(bool ok, const char* what) {
  if (!ok) {
    throw Error(Code::kCorruption, std::string("saved segment metrics are damaged (") + what +
                                       "); use an older checkpoint or start the metrics anew");
  }
}

}  // namespace

std::string SegmentMetrics::State() const {
  std::scoped_lock lock(mutex_);
  const std::vector<SegmentRow> rows = SortedRows();
  std::string out;
  out.reserve(kHead + rows.size() * kRow + 4);
  Append32(&out, kMagic);
  Append32(&out, kFormat);
  Append64(&out, max_values_);
  Append32(&out, level_);
  Append64(&out, samples_);
  Append64(&out, invalid_);
  Append64(&out, rows.size());
  for (const auto& [value, sums] : rows) {
    Append64(&out, value);
    Append64(&out, sums.samples);
    Append64(&out, sums.weight);
    Append64(&out, sums.positive);
    Append128(&out, sums.predicted);
    Append128(&out, sums.loss);
    Append128(&out, sums.square_weight);
    Append128(&out, sums.square_loss);
    Append128(&out, sums.square_square);
  }
  Append32(&out, Crc32c(0, out.data(), out.size()));
  return out;
}

void SegmentMetrics::Restore(std::string_view state) {
  const char* p = state.data();
  Check(state.size() >= kHead + 4, "too short");
  Check(DecodeFixed32(p) == kMagic, "they do not start like segment metrics");
  Check(DecodeFixed32(p + state.size() - 4) == Crc32c(0, p, state.size() - 4), "checksum");
  Check(DecodeFixed32(p + 4) == kFormat, "unknown format version");
  const uint64_t max_values = DecodeFixed64(p + 8);
  const uint32_t level = DecodeFixed32(p + 16);
  const uint64_t samples = DecodeFixed64(p + 20);
  const uint64_t invalid = DecodeFixed64(p + 28);
  const size_t bytes = state.size() - kHead - 4;
  const size_t count = bytes / kRow;
  Check(bytes % kRow == 0 && DecodeFixed64(p + 36) == count, "length");
  Check(max_values >= 1 && count <= max_values && level <= kMaxLevel, "limits");
  std::unordered_map<uint64_t, Segment, Mixed> segments;
  segments.reserve(count);
  p += kHead;
  for (size_t i = 0; i < count; ++i, p += kRow) {
    const uint64_t value = DecodeFixed64(p);
    Check(IsKept(value, level), "a value that is not kept");
    Check(i == 0 || value > DecodeFixed64(p - kRow), "order");
    Segment sums;
    sums.samples = DecodeFixed64(p + 8);
    sums.weight = DecodeFixed64(p + 16);
    sums.positive = DecodeFixed64(p + 24);
    sums.predicted = Decode128(p + 32);
    sums.loss = Decode128(p + 48);
    sums.square_weight = Decode128(p + 64);
    sums.square_loss = Decode128(p + 80);
    sums.square_square = Decode128(p + 96);
    Check(sums.positive <= sums.weight && sums.samples <= samples, "sums");
    segments.emplace(value, sums);
  }
  std::scoped_lock lock(mutex_);
  max_values_ = max_values;
  level_ = level;
  samples_ = samples;
  invalid_ = invalid;
  segments_ = std::move(segments);
}

}  // namespace elasticctr::metric
