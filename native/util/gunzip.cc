#include "util/gunzip.h"

#include <array>

#include "util/coding.h"
#include "util/inflate.h"
#include "util/status.h"

namespace elasticctr {
namespace {

constexpr size_t kHeadBytes = 10;
constexpr size_t kTailBytes = 8;
constexpr uint64_t kMostShrunk = 1032;  // no deflate stream makes more bytes of one

[[noreturn]] void Refuse(const char* why) { throw Error(Code::kData, std::string("the gzip body ") + why); }

constexpr std::array<uint32_t, 256> MakeCrcTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c & 1) != 0 ? (c >> 1) ^ 0xEDB88320u : c >> 1;
    table[i] = c;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = MakeCrcTable();

uint32_t Crc32(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (char byte : bytes) crc = kCrcTable[(crc ^ static_cast<uint8_t>(byte)) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

uint32_t Fixed32(std::string_view bytes) { return DecodeFixed32(bytes.data()); }
size_t Fixed16(std::string_view bytes) {
  return static_cast<uint8_t>(bytes[0]) | static_cast<size_t>(static_cast<uint8_t>(bytes[1])) << 8;
}

// Where the deflated bytes start.
size_t SkipHead(std::string_view gzip) {
  constexpr uint8_t kHasCrc = 2, kHasExtra = 4, kHasName = 8, kHasComment = 16, kUnknown = 0xE0;
  if (gzip.size() < kHeadBytes + kTailBytes || gzip.substr(0, 3) != "\x1f\x8b\x08") Refuse("is no gzip");
  const auto flags = static_cast<uint8_t>(gzip[3]);
  if ((flags & kUnknown) != 0) Refuse("is no gzip that is known here");
  size_t at = kHeadBytes;
  if ((flags & kHasExtra) != 0) at += 2 + Fixed16(gzip.substr(at));
  for (uint8_t text : {kHasName, kHasComment}) {
    if ((flags & text) == 0) continue;
    at = gzip.find('\0', at);
    if (at == std::string_view::npos) Refuse("ends too early");
    ++at;
  }
  const size_t end = gzip.size() - kTailBytes;
  if ((flags & kHasCrc) != 0) {
    if (at + 2 > end) Refuse("ends too early");
    if (Fixed16(gzip.substr(at)) != (Crc32(gzip.substr(0, at)) & 0xFFFF)) Refuse("is damaged: so is its head");
    at += 2;
  }
  if (at > end) Refuse("ends too early");
  return at;
}

}  // namespace

uint32_t GunzippedBytes(std::string_view gzip) {
  return gzip.size() < kHeadBytes + kTailBytes ? 0 : Fixed32(gzip.substr(gzip.size() - 4));
}

std::string Gunzip(std::string_view gzip) {
  const size_t head = SkipHead(gzip);
  const uint32_t said = GunzippedBytes(gzip);
  if (said > kMostShrunk * gzip.size()) Refuse("says that it holds more than it can");
  std::string_view rest;
  std::string plain = Inflate(gzip.substr(head), said, &rest);
  if (rest.size() != kTailBytes) Refuse(rest.size() < kTailBytes ? "ends too early" : "goes on after its end");
  if (plain.size() != said) Refuse("holds less than it says");
  if (Crc32(plain) != Fixed32(rest)) Refuse("is damaged: its checksum is another");
  return plain;
}

}  // namespace elasticctr
