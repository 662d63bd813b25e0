#include "util/gunzip.h"

#include <algorithm>
#include <array>
#include <boost/beast/zlib/inflate_stream.hpp>
#include <memory>

#include "util/coding.h"
#include "util/status.h"

namespace elasticctr {
namespace {

namespace zlib = boost::beast::zlib;

constexpr size_t kHeadBytes = 10;
constexpr size_t kTailBytes = 8;
constexpr size_t kFirstBytes = 64 * 1024;
// The most one step consumes and produces.
constexpr size_t kStepInput = 32 * 1024;
constexpr size_t kStepOutput = 256 * 1024;
// The input may exceed the output by a quarter of the output plus this slack. Compressors that flush after every line
// stay below that; streams of empty blocks or members do not.
constexpr size_t kSlackBytes = 64 * 1024;

[[noreturn]] void Refuse(const char* why) { throw Error(Code::kData, std::string("the gzip body ") + why); }

// Eight bytes at a time ("slicing by eight"): the checksum must not cost more than the decoding.
using CrcTables = std::array<std::array<uint32_t, 256>, 8>;
constexpr CrcTables MakeCrcTables() {
  CrcTables tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c & 1) != 0 ? (c >> 1) ^ 0xEDB88320u : c >> 1;
    tables[0][i] = c;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t i = 0; i < 256; ++i) tables[k][i] = tables[0][tables[k - 1][i] & 0xFF] ^ (tables[k - 1][i] >> 8);
  }
  return tables;
}
constexpr CrcTables kCrc = MakeCrcTables();

uint32_t Crc32(std::string_view bytes) {
  uint32_t crc = ~0u;
  const char* p = bytes.data();
  size_t n = bytes.size();
  for (; n >= 8; p += 8, n -= 8) {
    const uint32_t low = DecodeFixed32(p) ^ crc, high = DecodeFixed32(p + 4);
    crc = kCrc[7][low & 0xFF] ^ kCrc[6][low >> 8 & 0xFF] ^ kCrc[5][low >> 16 & 0xFF] ^ kCrc[4][low >> 24] ^
          kCrc[3][high & 0xFF] ^ kCrc[2][high >> 8 & 0xFF] ^ kCrc[1][high >> 16 & 0xFF] ^ kCrc[0][high >> 24];
  }
  for (; n != 0; ++p, --n) crc = kCrc[0][(crc ^ static_cast<uint8_t>(*p)) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

size_t Fixed16(std::string_view bytes) {
  return static_cast<uint8_t>(bytes[0]) | static_cast<size_t>(static_cast<uint8_t>(bytes[1])) << 8;
}

// Where the deflated bytes of the first member start.
size_t SkipHead(std::string_view gzip) {
  constexpr uint8_t kHasCrc = 2, kHasExtra = 4, kHasName = 8, kHasComment = 16, kUnknown = 0xE0;
  if (gzip.size() < kHeadBytes + kTailBytes) Refuse("ends too early");
  const auto flags = static_cast<uint8_t>(gzip[3]);
  if ((flags & kUnknown) != 0) Refuse("has unknown flags");
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
    if (Fixed16(gzip.substr(at)) != (Crc32(gzip.substr(0, at)) & 0xFFFF))
      Refuse("is damaged: the checksum of its header does not match");
    at += 2;
  }
  if (at > end) Refuse("ends too early");
  return at;
}

class Gunzipper {
 public:
  Gunzipper(std::string_view gzip, size_t limit, const std::function<void(size_t)>& on_step, std::string* plain)
      : gzip_(gzip), limit_(limit), on_step_(on_step), plain_(*plain) {}

  bool Run() {
    plain_.clear();
    do {
      if (!IsGzip(gzip_.substr(at_))) {
        Refuse(at_ == 0 ? "is not gzip; compress it, or send it without Content-Encoding"
                        : "is followed by other data");
      }
      on_step_(made_);
      at_ += SkipHead(gzip_.substr(at_));
      CheckWork();
      const size_t first = made_;
      if (!Inflate()) return false;
      if (gzip_.size() - at_ < kTailBytes) Refuse("ends too early");
      const char* tail = gzip_.data() + at_;
      if (DecodeFixed32(tail + 4) != static_cast<uint32_t>(made_ - first))
        Refuse("is damaged: its size does not match");
      if (DecodeFixed32(tail) != Crc32({plain_.data() + first, made_ - first})) {
        Refuse("is damaged: its checksum does not match");
      }
      at_ += kTailBytes;
    } while (at_ < gzip_.size());
    plain_.resize(made_);
    return true;
  }

 private:
  // Decodes one member's stream. Returns false if it exceeds the limit.
  bool Inflate() {
    stream_->reset();
    while (true) {
      // One byte beyond the limit shows that there is more.
      const size_t most = limit_ + 1;
      if (made_ == plain_.size()) plain_.resize(std::min(most, std::max(2 * plain_.size(), kFirstBytes)));
      zlib::z_params step;
      step.next_in = gzip_.data() + at_;
      step.avail_in = std::min(kStepInput, gzip_.size() - at_);
      step.next_out = plain_.data() + made_;
      step.avail_out = std::min(kStepOutput, plain_.size() - made_);
      const size_t given = step.avail_in, room = step.avail_out;
      boost::beast::error_code error;
      stream_->write(step, zlib::Flush::none, error);
      const bool is_end = error == zlib::error::end_of_stream;
      if (error && !is_end && error != zlib::error::need_buffers) Refuse("is damaged");
      at_ += given - step.avail_in;
      made_ += room - step.avail_out;
      if (made_ > limit_) return false;
      CheckWork();
      if (is_end) {
        // The decoder may have consumed a few bytes too many; data_type tells how many bits.
        at_ -= (static_cast<size_t>(step.data_type) & 63) / 8;
        return true;
      }
      if (step.avail_in == given && step.avail_out == room) Refuse("ends too early");
      on_step_(made_);
    }
  }

  void CheckWork() const {
    if (at_ > made_ + made_ / 4 + kSlackBytes) Refuse("consists almost entirely of empty blocks");
  }

  const std::string_view gzip_;
  const size_t limit_;
  const std::function<void(size_t)>& on_step_;
  std::string& plain_;
  size_t at_ = 0, made_ = 0;
  const std::unique_ptr<zlib::inflate_stream> stream_ = std::make_unique<zlib::inflate_stream>();
};

}  // namespace

bool IsGzip(std::string_view bytes) { return bytes.starts_with("\x1f\x8b\x08"); }

uint32_t GunzippedBytes(std::string_view gzip) {
  return gzip.size() < kHeadBytes + kTailBytes ? 0 : DecodeFixed32(gzip.data() + gzip.size() - 4);
}

bool Gunzip(std::string_view gzip, size_t limit, const std::function<void(size_t made)>& on_step, std::string* plain) {
  return Gunzipper(gzip, limit, on_step, plain).Run();
}

}  // namespace elasticctr
