// Gzip streams as zlib writes them, of every kind of block, whole, cut, changed and lying. Run under the address
// sanitizer.
#include "util/gunzip.h"

#include <memory>
#include <random>
#include <string>

#include "tests/check.h"
#include "util/coding.h"
#include "util/status.h"

using namespace elasticctr;

namespace {

// By zlib 1.2.13: fixed codes, codes of its own, stored bytes, and a repeated letter.
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

// A copy exactly as long as it says, so that a byte too many is seen.
bool Accepts(std::string_view gzip, std::string* plain) {
  const std::unique_ptr<char[]> exact(new char[gzip.size()]);
  gzip.copy(exact.get(), gzip.size());
  try {
    *plain = Gunzip({exact.get(), gzip.size()});
    return true;
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
  CHECK(Gunzip(Unhex(kFixed)) == Text().substr(0, 60));
  CHECK(Gunzip(Unhex(kDynamic)) == Text());
  CHECK(Gunzip(Unhex(kStored)) == Text().substr(0, 40));
  CHECK(Gunzip(Unhex(kRepeated)) == std::string(5000, 'a'));
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
    CHECK(Gunzip(gzip) == Text().substr(0, 60));
  }
  CHECK(Refuses(with(4, "\xff\xff"sv)) && Refuses(with(2, "\1\1"sv)) && Refuses(with(32, ""sv)));
  CHECK(Refuses("") && Refuses("\x1f\x8b\x08") && Refuses(Text()) && Refuses(plain + plain) && Refuses(plain + "x"));
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
    const std::string wanted = Gunzip(good);
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
      // What changed in the head alone (its date) changes nothing else.
      std::string plain;
      CHECK(!Accepts(bytes, &plain) || plain == wanted);
    }
  }
}

}  // namespace

int main() {
  TestEveryKindOfBlock();
  TestHeads();
  TestWhatItSaysIsChecked();
  TestCutAndChanged();
  return 0;
}
