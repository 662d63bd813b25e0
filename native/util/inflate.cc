#include "util/inflate.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "util/status.h"

namespace elasticctr {
namespace {

constexpr size_t kFirstBytes = 64 * 1024;
constexpr unsigned kMaxBits = 15;
constexpr unsigned kFastBits = 10;
constexpr size_t kLiterals = 288;
constexpr size_t kDistances = 30;
constexpr unsigned kEndOfBlock = 256;

[[noreturn]] void Refuse(const char* why) { throw Error(Code::kData, std::string("the compressed bytes ") + why); }

class BitReader {
 public:
  BitReader(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}

  // The next bits, at least 32 of them; those after the end are 0.
  uint64_t Peek() {
    while (have_ <= 56 && at_ < end_) {
      bits_ |= uint64_t{*at_++} << have_;
      have_ += 8;
    }
    return bits_;
  }
  void Skip(unsigned n) {
    if (n > have_) Refuse("end too early");
    bits_ >>= n;
    have_ -= n;
  }
  uint32_t Take(unsigned n) {
    const auto value = static_cast<uint32_t>(Peek() & ((uint64_t{1} << n) - 1));
    Skip(n);
    return value;
  }
  // What follows the byte that the last bit is of.
  std::string_view Rest() const {
    const uint8_t* at = at_ - have_ / 8;
    return {reinterpret_cast<const char*>(at), static_cast<size_t>(end_ - at)};
  }
  void Restart(std::string_view rest) { *this = BitReader(reinterpret_cast<const uint8_t*>(rest.data()), rest.size()); }

 private:
  const uint8_t* at_;
  const uint8_t* end_;
  uint64_t bits_ = 0;
  unsigned have_ = 0;
};

// A prefix code given by the lengths of its words. Short words are looked up, longer ones counted out.
class PrefixCode {
 public:
  // `lengths[i]` is that of symbol i; 0: it has none.
  void Build(const uint8_t* lengths, size_t symbols, bool may_lack) {
    std::fill(std::begin(counts_), std::end(counts_), 0);
    std::fill(std::begin(fast_), std::end(fast_), 0);
    for (size_t i = 0; i < symbols; ++i) ++counts_[lengths[i]];
    counts_[0] = 0;
    int left = 1;
    unsigned longest = 0;
    for (unsigned bits = 1; bits <= kMaxBits; ++bits) {
      left = 2 * left - counts_[bits];
      if (left < 0) Refuse("have a code with too many words");
      if (counts_[bits] != 0) longest = bits;
    }
    // A code of one word is not complete, and one of none is never used.
    if (left > 0 && !(may_lack && longest <= 1)) Refuse("have a code with too few words");
    uint16_t firsts[kMaxBits + 2] = {};
    uint32_t words[kMaxBits + 2] = {};
    for (unsigned bits = 1; bits <= kMaxBits; ++bits) {
      firsts[bits + 1] = static_cast<uint16_t>(firsts[bits] + counts_[bits]);
      words[bits + 1] = (words[bits] + counts_[bits]) << 1;
    }
    for (size_t i = 0; i < symbols; ++i) {
      const unsigned bits = lengths[i];
      if (bits == 0) continue;
      symbols_[firsts[bits]++] = static_cast<uint16_t>(i);
      const uint32_t word = words[bits]++;
      if (bits > kFastBits) continue;
      // Words come with their highest bit first, and everything else with its lowest.
      uint32_t reversed = 0;
      for (unsigned bit = 0; bit < bits; ++bit) reversed |= (word >> bit & 1) << (bits - 1 - bit);
      for (uint32_t at = reversed; at < 1u << kFastBits; at += 1u << bits)
        fast_[at] = static_cast<uint16_t>(i | bits << kSymbolBits);
    }
  }

  unsigned Take(BitReader* in) const {
    const uint64_t bits = in->Peek();
    if (const uint16_t found = fast_[bits & ((1u << kFastBits) - 1)]; found != 0) {
      in->Skip(found >> kSymbolBits);
      return found & ((1u << kSymbolBits) - 1);
    }
    int word = 0, first = 0, index = 0;
    for (unsigned length = 1; length <= kMaxBits; ++length) {
      word |= static_cast<int>(bits >> (length - 1) & 1);
      const int count = counts_[length];
      if (word - first < count) {
        in->Skip(length);
        return symbols_[static_cast<size_t>(index + word - first)];
      }
      index += count;
      first = (first + count) << 1;
      word <<= 1;
    }
    Refuse("have a word that their code lacks");
  }

 private:
  static constexpr unsigned kSymbolBits = 9;
  uint16_t counts_[kMaxBits + 1];
  uint16_t symbols_[kLiterals];
  uint16_t fast_[1u << kFastBits];  // length and symbol; 0: none so short
};

constexpr uint16_t kLengthBases[] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                     31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
constexpr uint8_t kLengthBits[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                   2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
constexpr uint16_t kDistanceBases[] = {1,    2,    3,    4,    5,    7,    9,    13,    17,    25,
                                       33,   49,   65,   97,   129,  193,  257,  385,   513,   769,
                                       1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
constexpr uint8_t kDistanceBits[] = {0, 0, 0, 0, 1, 1, 2, 2,  3,  3,  4,  4,  5,  5,  6,
                                     6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13};

class Inflater {
 public:
  Inflater(std::string_view deflated, size_t limit)
      : in_(reinterpret_cast<const uint8_t*>(deflated.data()), deflated.size()), limit_(limit) {}

  std::string Run(std::string_view* rest) {
    bool is_last;
    do {
      is_last = in_.Take(1) != 0;
      switch (in_.Take(2)) {
        case 0: CopyStored(); break;
        case 1:
          BuildFixed();
          Decode();
          break;
        case 2:
          BuildDynamic();
          Decode();
          break;
        default: Refuse("have a block of an unknown kind");
      }
    } while (!is_last);
    *rest = in_.Rest();
    out_.resize(made_);
    return std::move(out_);
  }

 private:
  void MakeRoom(size_t n) {
    if (n > limit_ - made_) Refuse("hold more than they may");
    if (made_ + n > out_.size()) out_.resize(std::min(limit_, std::max({made_ + n, 2 * out_.size(), kFirstBytes})));
  }

  void CopyStored() {
    std::string_view rest = in_.Rest();
    if (rest.size() < 4) Refuse("end too early");
    const size_t size = static_cast<uint8_t>(rest[0]) | static_cast<size_t>(static_cast<uint8_t>(rest[1])) << 8;
    const size_t check = static_cast<uint8_t>(rest[2]) | static_cast<size_t>(static_cast<uint8_t>(rest[3])) << 8;
    if ((size ^ check) != 0xFFFF) Refuse("have a stored block of two lengths");
    rest.remove_prefix(4);
    if (rest.size() < size) Refuse("end too early");
    MakeRoom(size);
    std::memcpy(out_.data() + made_, rest.data(), size);
    made_ += size;
    in_.Restart(rest.substr(size));
  }

  void BuildFixed() {
    uint8_t lengths[kLiterals];
    for (size_t i = 0; i < kLiterals; ++i) lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    literals_.Build(lengths, kLiterals, false);
    std::fill_n(lengths, 32, 5);  // the last two are words that never come
    distances_.Build(lengths, 32, false);
  }

  void BuildDynamic() {
    constexpr uint8_t kOrder[] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    const size_t literals = in_.Take(5) + 257, distances = in_.Take(5) + 1, given = in_.Take(4) + 4;
    if (literals > 286 || distances > kDistances) Refuse("have a code with too many words");
    uint8_t lengths[286 + kDistances] = {};
    for (size_t i = 0; i < given; ++i) lengths[kOrder[i]] = static_cast<uint8_t>(in_.Take(3));
    literals_.Build(lengths, 19, false);
    std::fill(std::begin(lengths), std::end(lengths), 0);
    for (size_t i = 0; i < literals + distances;) {
      const unsigned symbol = literals_.Take(&in_);
      if (symbol < 16) {
        lengths[i++] = static_cast<uint8_t>(symbol);
        continue;
      }
      if (symbol == 16 && i == 0) Refuse("repeat a length before the first");
      const uint8_t repeated = symbol == 16 ? lengths[i - 1] : 0;
      const size_t times = symbol == 16 ? 3 + in_.Take(2) : symbol == 17 ? 3 + in_.Take(3) : 11 + in_.Take(7);
      if (times > literals + distances - i) Refuse("have more lengths than words");
      std::fill_n(lengths + i, times, repeated);
      i += times;
    }
    if (lengths[kEndOfBlock] == 0) Refuse("have a block without an end");
    literals_.Build(lengths, literals, true);
    distances_.Build(lengths + literals, distances, true);
  }

  void Decode() {
    while (true) {
      unsigned symbol = literals_.Take(&in_);
      if (symbol < kEndOfBlock) {
        MakeRoom(1);
        out_[made_++] = static_cast<char>(symbol);
        continue;
      }
      if (symbol == kEndOfBlock) return;
      symbol -= kEndOfBlock + 1;
      if (symbol >= std::size(kLengthBases)) Refuse("have a length that is none");
      const size_t length = kLengthBases[symbol] + in_.Take(kLengthBits[symbol]);
      symbol = distances_.Take(&in_);
      if (symbol >= kDistances) Refuse("have a distance that is none");
      const size_t distance = kDistanceBases[symbol] + in_.Take(kDistanceBits[symbol]);
      if (distance > made_) Refuse("refer to bytes before their first");
      MakeRoom(length);
      char* to = out_.data() + made_;
      const char* from = to - distance;
      // Bytes that are made here may be taken again.
      for (size_t i = 0; i < length; ++i) to[i] = from[i];
      made_ += length;
    }
  }

  BitReader in_;
  const size_t limit_;
  std::string out_;
  size_t made_ = 0;
  PrefixCode literals_, distances_;
};

}  // namespace

std::string Inflate(std::string_view deflated, size_t limit, std::string_view* rest) {
  return Inflater(deflated, limit).Run(rest);
}

}  // namespace elasticctr
