// Gzip streams from zlib with every kind of block: whole, cut, changed, with wrong sizes, and made to waste time. Run
// under the address sanitizer.
//
// PROMISE: gzip body of empty blocks or members (CPU bomb) | refused after 64 KiB, long before its deadline
// PROMISE: gzip body that takes longer to decode than its request may | given up at the deadline, between two steps
#include "util/gunzip.h"

#include <memory>
#include <random>
#include <string>

#include "tests/check.h"
#include "util/coding.h"
#include "util/status.h"

using namespace elasticctr;

namespace {

// By zlib 1.2.13: fixed codes, dynamic codes, stored bytes, and a repeated letter.
constexpr char kFixed[] =
    "1f8b0800000000000203ab562a2d4e2d52b252a85672360452e6b53a0a4ac989792999298925a9c5409168a08c11903600ca4099"
    "861026000a216d383c000000";
constexpr char kDynamic[] =
    "1f8b08000000000002035592bd0ec2300c845f056566881de78f95c7400c15edc0c24061aafaee6440eae729562ebe3bfbb285ef"
    "babcc3e5b485ab8ca3eee753784caff9394f9f651d37b781e838e340fea51ca51d65c78372d49a8f3ae1def0be80a6815d225595"
    "8819e5a8dd294e75cd441a7a921a4d723e3a3023d2d093156cb942a7d0412152d953c9d6a8d3e9a017b71dda96c8894438acb83d"
    "88724592dcf6cc2d36bb9d1717477149556628cd5c22cc5da3cb44dc5fd1883e4d119c6a519825bd687158757dcd7176ea25e725"
    "097d8e3fc11f92385fb231fb7dff0112de510b3d030000";
constexpr char kStored[] =
    "1f8b0800000000000403012800d7ff7b2275736572223a207b224331223a20377d2c202263616e64696461746573223a205b7b22"
    "43322222a6caa628000000";
constexpr char kRepeated[] = "1f8b0800000000000203edc13101000000c2a0aceb5fc2147e4001000000006f037659f44c88130000";

std::string Unhex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

std::string Text() {
  std::string text = R"({"user": {"C1": 7}, "candidates": [)";
  for (int i = 0; i < 60; ++i) text += (i == 0 ? R"({"C2": )" : R"(, {"C2": )") + std::to_string(i * i) + "}";
  return text + "]}";
}

constexpr size_t kLimit = 1 << 20;

std::string Plain(std::string_view gzip) {
  std::string plain;
  CHECK(Gunzip(gzip, kLimit, [](size_t) {}, &plain));
  return plain;
}

// An exact copy makes a read past the end visible.
bool Accepts(std::string_view gzip, std::string* plain) {
  const std::unique_ptr<char[]> exact(new char[gzip.size()]);
  gzip.copy(exact.get(), gzip.size());
  try {
    return Gunzip({exact.get(), gzip.size()}, kLimit, [](size_t) {}, plain);
  } catch (const Error& error) {
    CHECK(error.code() == Code::kData);
    return false;
  }
}

bool Refuses(std::string_view gzip) {
  std::string plain;
  return !Accepts(gzip, &plain);
}

void TestEveryKindOfBlock() {
  CHECK(Plain(Unhex(kFixed)) == Text().substr(0, 60));
  CHECK(Plain(Unhex(kDynamic)) == Text());
  CHECK(Plain(Unhex(kStored)) == Text().substr(0, 40));
  CHECK(Plain(Unhex(kRepeated)) == std::string(5000, 'a'));
  CHECK(GunzippedBytes(Unhex(kDynamic)) == Text().size() && GunzippedBytes("\x1f\x8b") == 0);
}

void TestHeads() {
  const std::string plain = Unhex(kFixed);
  auto with = [&](char flags, std::string_view more) {
    std::string gzip = plain;
    gzip[3] = flags;
    return gzip.insert(10, more);
  };
  using namespace std::string_view_literals;
  for (const std::string& gzip : {with(8, "name\0"sv), with(4, "\3\0abc"sv), with(28, "\1\0xn\0comment\0"sv)}) {
    CHECK(Plain(gzip) == Text().substr(0, 60));
  }
  CHECK(Refuses(with(4, "\xff\xff"sv)) && Refuses(with(2, "\1\1"sv)) && Refuses(with(32, ""sv)));
  CHECK(Refuses("") && Refuses("\x1f\x8b\x08") && Refuses(Text()) && Refuses(plain + "x"));
  CHECK(Refuses(plain + plain.substr(0, 12)) && Refuses(plain + Text()));
}

void TestWhatItSaysIsChecked() {
  const std::string good = Unhex(kRepeated);
  for (uint32_t said : {0u, 4999u, 5001u, 40'000u, 0xFFFFFFFFu}) {
    std::string gzip = good;
    EncodeFixed32(gzip.data() + gzip.size() - 4, said);
    CHECK(Refuses(gzip));
  }
  std::string gzip = good;
  gzip[gzip.size() - 8] ^= 1;
  CHECK(Refuses(gzip));
}

void TestCutAndChanged() {
  std::mt19937_64 random(3);
  for (const char* hex : {kFixed, kDynamic, kStored, kRepeated}) {
    const std::string good = Unhex(hex);
    const std::string wanted = Plain(good);
    for (size_t size = 0; size < good.size(); ++size) CHECK(Refuses(good.substr(0, size)));
    for (int i = 0; i < 5000; ++i) {
      std::string bytes = good;
      for (uint64_t k = 1 + random() % 3; k > 0; --k) {
        const size_t at = random() % bytes.size();
        if (random() % 2 == 0) {
          bytes[at] = static_cast<char>(random());
        } else {
          bytes.insert(at, 1, static_cast<char>(random()));
        }
      }
      // A change in the head alone (its date) changes nothing else; a second head may only begin at the end.
      std::string plain;
      CHECK(!Accepts(bytes, &plain) || plain == wanted);
    }
  }
}

void TestSeveralMembers() {
  const std::string two = Unhex(kFixed) + Unhex(kDynamic) + Unhex(kStored);
  CHECK(Plain(two) == Text().substr(0, 60) + Text() + Text().substr(0, 40));
  std::string plain;
  // Of all members together.
  CHECK(!Gunzip(two, Text().size() + 99, [](size_t) {}, &plain));
  CHECK(Gunzip(two, Text().size() + 100, [](size_t) {}, &plain));
}

void TestLimit() {
  std::string plain;
  CHECK(Gunzip(Unhex(kRepeated), 5000, [](size_t) {}, &plain) && plain.size() == 5000);
  CHECK(!Gunzip(Unhex(kRepeated), 4999, [](size_t) {}, &plain));
  CHECK(!Gunzip(Unhex(kRepeated), 0, [](size_t) {}, &plain));
}

void TestWhatItIsNot() {
  try {
    Plain(R"({"samples": [{"C1": 7}]})");
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.code() == Code::kData && std::string(error.what()).find("is not gzip") != std::string::npos);
  }
  CHECK(!IsGzip("{") && !IsGzip("") && IsGzip(Unhex(kFixed)));
}

class BitWriter {
 public:
  void Put(uint32_t value, int bits) {
    for (int i = 0; i < bits; ++i, ++count_) {
      if (count_ % 8 == 0) bytes_ += '\0';
      if ((value >> i & 1) != 0) bytes_.back() = static_cast<char>(bytes_.back() | 1 << count_ % 8);
    }
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
  size_t count_ = 0;
};

// A member of `blocks` that claims to be empty.
std::string Member(const std::string& blocks) { return Unhex("1f8b0800000000000203") + blocks + std::string(8, '\0'); }

std::string EmptyFixed(size_t bytes) {
  BitWriter out;
  while (out.bytes().size() < bytes) out.Put(2, 10);
  return out.bytes();
}

// Blocks whose two codes have to be built and are never used: 257 literals, of which only the end has a code, and one
// distance.
std::string EmptyDynamic(size_t bytes) {
  BitWriter out;
  while (out.bytes().size() < bytes) {
    out.Put(0b100, 3);  // not the last, dynamic codes
    out.Put(0, 5);
    out.Put(0, 5);
    out.Put(14, 4);                                                      // 18 lengths of lengths, up to that of 1
    for (int i = 0; i < 18; ++i) out.Put(i == 2 || i == 17 ? 1 : 0, 3);  // 18 (zeros) and 1 have one bit each
    out.Put(0b1, 1);
    out.Put(127, 7);  // 138 zeros
    out.Put(0b1, 1);
    out.Put(107, 7);  // 118 more: up to 255
    out.Put(0b0, 1);  // the end of the block: one bit
    out.Put(0b0, 1);  // one distance: one bit
    out.Put(0, 1);    // the end
  }
  return out.bytes();
}

void TestBombsOfNothing() {
  for (const std::string& bomb :
       {Member(EmptyFixed(8 << 20)), Member(EmptyDynamic(8 << 20)), std::string(8 << 20, '\0')}) {
    size_t steps = 0;
    std::string plain;
    bool is_refused = false;
    try {
      Gunzip(bomb, 8 << 20, [&](size_t made) { steps += made == 0 ? 1 : 100; }, &plain);
    } catch (const Error& error) {
      is_refused = error.code() == Code::kData;
    }
    CHECK(is_refused && steps < 10);
  }
  // A hundred thousand empty members.
  std::string members;
  for (int i = 0; i < 100'000; ++i) members += Unhex("1f8b080000000000020303000000000000000000");
  size_t steps = 0;
  std::string plain;
  try {
    Gunzip(members, 8 << 20, [&](size_t) { ++steps; }, &plain);
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.code() == Code::kData && steps < 10'000);
  }
  // A few are fine: compressors write them when they are flushed.
  CHECK(Plain(members.substr(0, 20 * 50)).empty());
}

struct TimeIsUp {};

void TestTheDeadlineIsLookedAt() {
  // A mebibyte of one letter in a kibibyte, repeated.
  std::string gzip;
  while (gzip.size() < (1 << 16)) gzip += Unhex(kRepeated);
  size_t steps = 0, last = 0;
  std::string plain;
  bool is_stopped = false;
  try {
    Gunzip(
        gzip, 64 << 20,
        [&](size_t made) {
          CHECK(made - last <= (256 << 10));
          last = made;
          if (++steps == 20) throw TimeIsUp();
        },
        &plain);
  } catch (const TimeIsUp&) {
    is_stopped = true;
  }
  CHECK(is_stopped && steps == 20);
}

void TestAnyBytesBehindAGoodHead() {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20'000; ++i) {
    std::string blocks(1 + random() % 300, '\0');
    for (char& byte : blocks) byte = static_cast<char>(random());
    // Half of them start with a block of a known kind.
    if (i % 2 == 0) blocks[0] = static_cast<char>((blocks[0] & ~7) | (i % 4 == 0 ? 4 : 2) | (i % 3 == 0));
    std::string plain;
    Accepts(Member(blocks), &plain);
  }
}

}  // namespace

int main() {
  TestSeveralMembers();
  TestLimit();
  TestWhatItIsNot();
  TestBombsOfNothing();
  TestTheDeadlineIsLookedAt();
  TestAnyBytesBehindAGoodHead();
  TestEveryKindOfBlock();
  TestHeads();
  TestWhatItSaysIsChecked();
  TestCutAndChanged();
  return 0;
}
