// The index of one shard: maps a feasign to its row. Open addressing over 4-byte entries (8 tag bits of the hash, 24
// bits of row number), 16 to a cache line; the feasign itself is compared in the row. A search reads one line here and
// one row. The index grows by a fifth when 85 % full, so it takes 4.7 to 5.7 bytes per row.
//
// Entries are never removed one by one: dropping rows rebuilds the index, which costs about as much.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "table/row.h"
#include "table/shard_rows.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace elasticctr {

// Where the index finds the feasigns of the shard's rows.
struct KeySource {
  const std::byte* base;
  size_t stride;
  const ShardRows& rows;
  uint64_t Key(uint32_t local) const { return RowLayout::Key(base + static_cast<size_t>(rows.Number(local)) * stride); }
};

class Index {
 public:
  static constexpr uint32_t kMaxRow = (1u << 24) - 1;

  Index() = default;

  // The line at which the search for a feasign with this hash begins (Mix64, whose top byte chose the shard).
  const uint32_t* Line(uint64_t hash) const { return lines_.get() + kWidth * LineNumber(hash); }

  // The first row in `line` whose tag matches, 0 if none. It may hold another feasign.
  static uint32_t Candidate(const uint32_t* line, uint64_t hash) {
    const uint32_t fits = Fits(line, Tag(hash));
    return fits == 0 ? 0 : line[__builtin_ctz(fits)] & kMaxRow;
  }

  // The row of a feasign, 0 if it has none.
  uint32_t Find(uint64_t feasign, uint64_t hash, const KeySource& keys) const {
    for (uint32_t number = LineNumber(hash);; number = number + 1 == line_count_ ? 0 : number + 1) {
      const uint32_t* line = lines_.get() + kWidth * number;
      for (uint32_t fits = Fits(line, Tag(hash)); fits != 0; fits &= fits - 1) {
        const uint32_t row = line[__builtin_ctz(fits)] & kMaxRow;
        if (keys.Key(row) == feasign) return row;
      }
      if (line[kWidth - 1] == 0) return 0;
    }
  }

  // Adds row `count`, the newest of the shard, and grows first if needed. REQUIRES: its feasign is not in the index.
  void Add(uint32_t count, const KeySource& keys);
  // Starts over with rows 1 to count.
  void Rebuild(uint32_t count, const KeySource& keys);

  size_t bytes() const { return line_count_ * kWidth * sizeof(uint32_t); }

 private:
  static constexpr uint32_t kWidth = 16;

  struct Free {
    void operator()(uint32_t* p) const;
  };

  static uint32_t Tag(uint64_t hash) { return static_cast<uint32_t>(hash & 0xFF); }
  uint32_t LineNumber(uint64_t hash) const { return static_cast<uint32_t>((((hash << 8) >> 32) * line_count_) >> 32); }

  // Bit i: entry i is taken and has this tag. Free entries are 0; no row has number 0.
  static uint32_t Fits(const uint32_t* line, uint32_t tag) {
#if defined(__SSE2__)
    const __m128i wanted = _mm_set1_epi32(static_cast<int>(tag));
    uint32_t fits = 0, free = 0;
    for (int i = 0; i < 4; ++i) {
      const __m128i entries = _mm_load_si128(reinterpret_cast<const __m128i*>(line) + i);
      const __m128i equal = _mm_cmpeq_epi32(_mm_srli_epi32(entries, 24), wanted);
      const __m128i empty = _mm_cmpeq_epi32(entries, _mm_setzero_si128());
      fits |= static_cast<uint32_t>(_mm_movemask_ps(_mm_castsi128_ps(equal))) << (4 * i);
      free |= static_cast<uint32_t>(_mm_movemask_ps(_mm_castsi128_ps(empty))) << (4 * i);
    }
    return fits & ~free;
#else
    uint32_t fits = 0;
    for (uint32_t i = 0; i < kWidth; ++i) fits |= uint32_t{line[i] != 0 && line[i] >> 24 == tag} << i;
    return fits;
#endif
  }

  void Allocate(size_t lines);
  void Place(uint64_t hash, uint32_t row);

  std::unique_ptr<uint32_t, Free> lines_;
  uint32_t line_count_ = 0;
  uint32_t limit_ = 0;  // rows it holds before it grows
};

}  // namespace elasticctr
