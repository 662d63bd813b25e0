#include "util/crc32c.h"

#include <array>

#include "util/coding.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace elasticctr {
namespace {

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c & 1) ? (c >> 1) ^ 0x82F63B78u : c >> 1;
    table[i] = c;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = MakeTable();

uint32_t Portable(uint32_t crc, const uint8_t* p, size_t size) {
  for (; size > 0; --size) crc = kTable[(crc ^ *p++) & 0xFF] ^ (crc >> 8);
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t Sse42(uint32_t crc, const uint8_t* p, size_t size) {
  uint64_t c = crc;
  for (; size >= 8; size -= 8, p += 8) c = _mm_crc32_u64(c, DecodeFixed64(p));
  for (; size > 0; --size) c = _mm_crc32_u8(static_cast<uint32_t>(c), *p++);
  return static_cast<uint32_t>(c);
}
#endif

}  // namespace

uint32_t Crc32c(uint32_t crc, const void* data, size_t size) {
  const auto* p = static_cast<const uint8_t*>(data);
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return ~Sse42(~crc, p, size);
#endif
  return ~Portable(~crc, p, size);
}

}  // namespace elasticctr
