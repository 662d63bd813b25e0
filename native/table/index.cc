#include "table/index.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "util/hash.h"

namespace elasticctr {
namespace {

constexpr double kFullest = 0.85;
constexpr double kGrowth = 1.2;

}  // namespace

void Index::Free::operator()(uint32_t* p) const { std::free(p); }

void Index::Allocate(size_t lines) {
  const size_t bytes = lines * kWidth * sizeof(uint32_t);
  lines_.reset(static_cast<uint32_t*>(std::aligned_alloc(64, bytes)));
  if (!lines_) throw std::bad_alloc();
  std::memset(lines_.get(), 0, bytes);
  line_count_ = static_cast<uint32_t>(lines);
  limit_ = static_cast<uint32_t>(static_cast<double>(lines * kWidth) * kFullest);
}

void Index::Place(uint64_t hash, uint32_t row) {
  for (uint32_t number = LineNumber(hash);; number = number + 1 == line_count_ ? 0 : number + 1) {
    uint32_t* line = lines_.get() + kWidth * number;
    if (line[kWidth - 1] != 0) continue;
    uint32_t* entry = std::find(line, line + kWidth, 0u);
    *entry = Tag(hash) << 24 | row;
    return;
  }
}

void Index::Add(uint32_t count, const KeySource& keys) {
  if (count > limit_) return Rebuild(count, keys);
  Place(Mix64(keys.Key(count)), count);
}

void Index::Rebuild(uint32_t count, const KeySource& keys) {
  const auto needed = static_cast<size_t>(static_cast<double>(count) * kGrowth / kFullest / kWidth);
  Allocate(std::max<size_t>(needed + 1, 1));
  for (uint32_t row = 1; row <= count; ++row) Place(Mix64(keys.Key(row)), row);
}

}  // namespace elasticctr
