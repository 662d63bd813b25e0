// The tile configuration every product uses: palette 1, eight tiles of 16 rows of 64 bytes. It is a constant, not read
// from CPUID, because some virtual machines hide that leaf.
// Tile state belongs to a thread: load it at the start of a task, release it at the end.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdint>

namespace elasticctr::dense {

struct TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

inline constexpr TileConfig kTileConfig;

__attribute__((target("amx-tile"))) inline void LoadTileConfig() { _tile_loadconfig(&kTileConfig); }

}  // namespace elasticctr::dense
#endif
