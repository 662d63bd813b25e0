#include "table/row.h"

#include "table/optimizer/optimizer.h"

namespace elasticctr {
namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kCheapPadding = 8;

// Rounds up to whole cache lines if that costs little, else only to the key's alignment.
size_t PaddedSize(size_t bytes) {
  const size_t lines = (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  return lines - bytes <= kCheapPadding ? lines : (bytes + 7) / 8 * 8;
}

std::string Quote(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return quoted + "\"";
}

}  // namespace

RowLayout::RowLayout(const TableSettings& settings) : has_counters_(settings.counters) {
  weights_offset_ = static_cast<uint32_t>(kCountersOffset + (has_counters_ ? sizeof(Counters) : 0));
  uint32_t offset = weights_offset_;
  description_ = std::string("{\"counters\":") + (has_counters_ ? "true" : "false") + ",\"segments\":[";
  for (const SegmentSettings& segment : settings.segments) {
    segments_.push_back({segment.dim, offset, 0, weights_dim_});
    offset += segment.dim * sizeof(float);
    weights_dim_ += segment.dim;
    if (segments_.size() > 1) description_ += ",";
    description_ += "{\"name\":" + Quote(segment.name) + ",\"dim\":" + std::to_string(segment.dim) +
                    ",\"optimizer\":\"" + OptimizerName(segment.optimizer.kind) +
                    (segment.optimizer.catch_up > 0 ? "\",\"catch_up\":true}" : "\"}");
  }
  description_ += "]}";
  for (size_t i = 0; i < segments_.size(); ++i) {
    segments_[i].state = offset;
    const size_t floats = MakeOptimizer(settings.segments[i].optimizer)->StateFloats(segments_[i].dim);
    state_floats_ += static_cast<uint32_t>(floats);
    offset += static_cast<uint32_t>(floats * sizeof(float));
  }
  used_bytes_ = offset;
  stride_ = PaddedSize(offset);
}

}  // namespace elasticctr
