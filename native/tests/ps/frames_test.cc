// Bodies of the parameter server's frames: writers and readers agree, and invalid bodies are refused.
#include "ps/wire/frames.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "tests/check.h"
#include "util/hash.h"
#include "util/status.h"

namespace elasticctr::ps {
namespace {

const std::vector<TableShape> kShapes = {{9, false}, {1, true}, {33, false}};

template <typename T>
T At(const void* array, size_t i) {
  T value;
  std::memcpy(&value, static_cast<const uint8_t*>(array) + i * sizeof(T), sizeof value);
  return value;
}

bool IsRefused(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& e) {
    CHECK(e.code() == Code::kData);
    return true;
  }
  return false;
}

struct Content {
  explicit Content(uint64_t seed) : rng(seed) {
    for (size_t t = 0; t < kShapes.size(); ++t) {
      const size_t count = rng() % 20;
      feasigns.emplace_back(count);
      occurrences.emplace_back(count);
      shows.emplace_back(count);
      clicks.emplace_back(count);
      masks.emplace_back(count);
      gradients.emplace_back(count * kShapes[t].dim);
      for (size_t i = 0; i < count; ++i) {
        feasigns[t][i] = rng();
        occurrences[t][i] = static_cast<uint32_t>(rng());
        shows[t][i] = static_cast<float>(i);
        clicks[t][i] = static_cast<float>(i % 2);
        masks[t][i] = rng();
      }
      for (float& g : gradients[t]) g = static_cast<float>(static_cast<int64_t>(rng() % 2001) - 1000) * 1e-4f;
    }
  }
  std::mt19937_64 rng;
  std::vector<std::vector<uint64_t>> feasigns, masks;
  std::vector<std::vector<uint32_t>> occurrences;
  std::vector<std::vector<float>> shows, clicks, gradients;
};

std::vector<uint8_t> PullBody(const Content& content, uint8_t flags) {
  PullRequest pull;
  pull.flags = flags;
  pull.encoding = Encoding::kInt8;
  pull.dense_version = 77;
  for (uint32_t t = 0; t < kShapes.size(); ++t) {
    pull.tables.push_back({t, static_cast<uint32_t>(content.feasigns[t].size()), content.feasigns[t].data(),
                           content.occurrences[t].data()});
  }
  std::vector<uint8_t> body(PullBytes(pull, kShapes));
  WritePull(pull, kShapes, body.data());
  return body;
}

void TestPullRoundTrip() {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Content content(seed);
    const auto flags = static_cast<uint8_t>(seed % 4);
    const auto body = PullBody(content, flags);
    const PullRequest pull = ReadPull(body, kShapes);
    CHECK(pull.flags == flags && pull.encoding == Encoding::kInt8 && pull.dense_version == 77);
    CHECK(pull.tables.size() == kShapes.size());
    for (size_t t = 0; t < kShapes.size(); ++t) {
      CHECK(pull.tables[t].number == t && pull.tables[t].count == content.feasigns[t].size());
      CHECK((pull.tables[t].occurrences != nullptr) == ((flags & kPullInserts) != 0 && t == 1));
      for (size_t i = 0; i < pull.tables[t].count; ++i) {
        CHECK(At<uint64_t>(pull.tables[t].feasigns, i) == content.feasigns[t][i]);
        if (pull.tables[t].occurrences == nullptr) continue;
        CHECK(At<uint32_t>(pull.tables[t].occurrences, i) == content.occurrences[t][i]);
      }
    }
  }
}

std::vector<uint8_t> PushBody(const Content& content, Encoding encoding, bool masks, std::vector<float> dense) {
  PushRequest push;
  push.trainer = 3;
  push.chunk = 5ull << 32 | 9;
  push.from = 10;
  push.to = 12;
  push.weight = 512;
  push.now = 99;
  push.rate_scale = 0.5f;
  push.group = GroupMode::kDense;
  push.encoding = encoding;
  push.flags = static_cast<uint8_t>(kPushWantsDense | (masks ? kPushMasks : 0));
  std::vector<std::vector<uint8_t>> encoded;
  for (uint32_t t = 0; t < kShapes.size(); ++t) {
    const size_t count = content.feasigns[t].size(), dim = kShapes[t].dim;
    encoded.emplace_back(count * EncodedBytes(encoding, dim));
    EncodeRows(encoding, content.gradients[t].data(), count, dim, encoded[t].data());
    push.tables.push_back({t, static_cast<uint32_t>(count), content.feasigns[t].data(), content.shows[t].data(),
                           content.clicks[t].data(), content.masks[t].data(), encoded[t].data()});
  }
  push.dense_encoding = encoding == Encoding::kInt8 ? Encoding::kBf16 : encoding;
  std::vector<uint8_t> dense_bytes(EncodedBytes(push.dense_encoding, dense.size()));
  EncodeRows(push.dense_encoding, dense.data(), 1, dense.size(), dense_bytes.data());
  push.dense_floats = static_cast<uint32_t>(dense.size());
  push.dense = dense_bytes.data();
  std::vector<uint8_t> body(PushBytes(push, kShapes));
  WritePush(push, kShapes, body.data());
  return body;
}

void TestPushRoundTrip() {
  const std::vector<float> dense = {1.0f, -0.5f, 0.25f, 1024.0f, 0.0f};
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Content content(seed);
    const auto encoding = static_cast<Encoding>(seed % 4);
    const bool has_masks = seed % 2 == 1;
    const auto body = PushBody(content, encoding, has_masks, dense);
    const PushRequest push = ReadPush(body, kShapes);
    CHECK(push.trainer == 3 && push.chunk == (5ull << 32 | 9) && push.from == 10 && push.to == 12);
    CHECK(push.weight == 512 && push.now == 99 && push.rate_scale == 0.5f);
    CHECK(push.kind == PushKind::kGradients && push.group == GroupMode::kDense && push.encoding == encoding);
    for (size_t t = 0; t < kShapes.size(); ++t) {
      const PushTable& table = push.tables[t];
      const size_t dim = kShapes[t].dim;
      CHECK(table.count == content.feasigns[t].size() && (table.masks != nullptr) == has_masks);
      std::vector<float> gradients(table.count * dim);
      DecodeRows(encoding, table.gradients, table.count, dim, gradients.data());
      for (size_t i = 0; i < table.count; ++i) {
        CHECK(At<uint64_t>(table.feasigns, i) == content.feasigns[t][i]);
        CHECK(At<float>(table.shows, i) == content.shows[t][i]);
        CHECK(At<float>(table.clicks, i) == content.clicks[t][i]);
        if (has_masks) CHECK(At<uint64_t>(table.masks, i) == content.masks[t][i]);
        float largest = 0.0f;
        for (size_t j = 0; j < dim; ++j) largest = std::max(largest, std::fabs(content.gradients[t][i * dim + j]));
        const float tolerance = encoding == Encoding::kFp32   ? 0.0f
                                : encoding == Encoding::kFp16 ? 0.1f * 0x1p-11f
                                : encoding == Encoding::kBf16 ? 0.1f * 0x1p-8f
                                                              : largest / 254.0f * 1.0001f;
        for (size_t j = i * dim; j < (i + 1) * dim; ++j) {
          CHECK(std::fabs(gradients[j] - content.gradients[t][j]) <= tolerance);
        }
      }
    }
    std::vector<float> received(push.dense_floats);
    DecodeRows(push.dense_encoding, push.dense, 1, received.size(), received.data());
    CHECK(received == dense);
  }
}

void TestEncodings() {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> rows = {1e9f, -1e9f, 65504.0f, nan, infinity, -infinity, 1e-9f, 0.0f, 3.5f};
  for (size_t i = 0; i < rows.size(); ++i) {
    for (const Encoding encoding : {Encoding::kFp32, Encoding::kFp16, Encoding::kInt8, Encoding::kBf16}) {
      uint8_t bytes[8];
      float back;
      EncodeRows(encoding, &rows[i], 1, 1, bytes);
      DecodeRows(encoding, bytes, 1, 1, &back);
      CHECK(std::isfinite(back) == std::isfinite(rows[i]));
      if (encoding == Encoding::kFp16 && std::fabs(rows[i]) > 65504.0f && std::isfinite(rows[i])) {
        CHECK(back == std::copysign(65504.0f, rows[i]));
      } else if (std::isfinite(rows[i]) && encoding != Encoding::kFp16) {
        const float step = encoding == Encoding::kBf16 ? 0x1p-8f : 1e-6f;
        CHECK(std::fabs(back - rows[i]) <= step * std::fabs(rows[i]));
      }
    }
  }
  CHECK(EncodedBytes(Encoding::kFp32, 9) == 36 && EncodedBytes(Encoding::kFp16, 9) == 18);
  CHECK(EncodedBytes(Encoding::kInt8, 9) == 16 && EncodedBytes(Encoding::kInt8, 8) == 12);
  CHECK(EncodedBytes(Encoding::kBf16, 9) == 18);
  // In bf16, ties round to even, a value that rounds to infinity is refused by the receiver, and 1e18 is the largest
  // accepted.
  const std::vector<std::pair<uint32_t, uint32_t>> rounded = {
      {0x3F808000u, 0x3F800000u}, {0x3F818000u, 0x3F820000u}, {0x3F808001u, 0x3F810000u}, {0xBF7FFFFFu, 0xBF800000u}};
  for (const auto& [from, to] : rounded) {
    const auto value = std::bit_cast<float>(from);
    uint8_t bf16[2];
    float back;
    EncodeRows(Encoding::kBf16, &value, 1, 1, bf16);
    DecodeRows(Encoding::kBf16, bf16, 1, 1, &back);
    CHECK(std::bit_cast<uint32_t>(back) == to);
  }
  for (const float value : {std::numeric_limits<float>::max(), 1.1e18f, -1.1e18f, nan, infinity, 1e18f, -3.0f}) {
    uint8_t bf16[2];
    EncodeRows(Encoding::kBf16, &value, 1, 1, bf16);
    CHECK(AreFinite(Encoding::kBf16, bf16, 1, 1) == (std::fabs(value) <= 1e18f));
  }
  // In int8 a row with one bad value is bad as a whole; other rows are not affected.
  const std::vector<float> pair = {1.0f, nan, 0.5f, 2.0f};
  uint8_t bytes[16];
  float back[4];
  EncodeRows(Encoding::kInt8, pair.data(), 2, 2, bytes);
  DecodeRows(Encoding::kInt8, bytes, 2, 2, back);
  CHECK(std::isnan(back[0]) && std::isnan(back[1]) && std::fabs(back[2] - 0.5f) < 0.01f && back[3] == 2.0f);
}

// What a mutated body still contains must lie within it; anything else is a DataError.
void TestMutations() {
  std::mt19937_64 rng(7);
  size_t refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    const Content content(rng() % 100);
    const bool is_pull = rng() % 2 == 0;
    auto body = is_pull ? PullBody(content, static_cast<uint8_t>(rng() % 4))
                        : PushBody(content, static_cast<Encoding>(rng() % 4), rng() % 2 == 0, {1.0f, 2.0f});
    switch (rng() % 4) {
      case 0: body.resize(rng() % (body.size() + 1)); break;
      case 1: body.insert(body.begin() + static_cast<std::ptrdiff_t>(rng() % body.size()), rng() % 9, 0xFF); break;
      default: break;
    }
    for (size_t k = rng() % 4; k > 0 && !body.empty(); --k) {
      const size_t head = std::min<size_t>(body.size(), 72);
      body[rng() % (rng() % 2 == 0 ? head : body.size())] = static_cast<uint8_t>(rng());
    }
    // An exact copy, so that a sanitizer sees a read past the end.
    const std::vector<uint8_t> exact(body.begin(), body.end());
    refused += IsRefused([&] {
      const auto* end = exact.data() + exact.size();
      if (is_pull) {
        for (const PullTable& table : ReadPull(exact, kShapes).tables) {
          CHECK(table.count == 0 || reinterpret_cast<const uint8_t*>(table.feasigns) + 8ull * table.count <= end);
          for (size_t i = 0; i < table.count; ++i) At<uint64_t>(table.feasigns, i);
          for (size_t i = 0; table.occurrences != nullptr && i < table.count; ++i) At<uint32_t>(table.occurrences, i);
        }
      } else {
        const PushRequest push = ReadPush(exact, kShapes);
        std::vector<float> decoded;
        for (const PushTable& table : push.tables) {
          decoded.resize(table.count * kShapes[table.number].dim);
          DecodeRows(push.encoding, table.gradients, table.count, kShapes[table.number].dim, decoded.data());
        }
        CHECK(push.dense + EncodedBytes(push.dense_encoding, push.dense_floats) <= end);
      }
    });
  }
  CHECK(refused > 5'000);
}

void TestRefusals() {
  const Content content(1);
  const auto push = PushBody(content, Encoding::kFp32, false, {1.0f});
  const auto with = [&](size_t at, uint8_t value) {
    auto body = push;
    body[at] = value;
    return IsRefused([&] { ReadPush(body, kShapes); });
  };
  CHECK(!with(0, 9));
  CHECK(with(16, 12));  // from == to
  CHECK(with(31, 0x80));
  CHECK(with(35, 0xBF));  // a negative rate scale
  {
    auto body = push;
    body[34] = 0x80;
    body[35] = 0x7F;  // an infinite one
    CHECK(IsRefused([&] { ReadPush(body, kShapes); }));
  }
  CHECK(with(36, 4) && with(36, 1) && with(36, 2) && with(36, 3));
  CHECK(with(37, 3) && with(38, 3) && with(39, 4) && with(42, 1));
  CHECK(with(40, 4) && with(48, 1) && with(48, 9));
}

void TestShares() {
  for (const uint32_t shards : {1u, 2u, 3u, 7u, 64u, 1000u, 4096u}) {
    for (const uint64_t floats : {0ull, 1ull, 15ull, 16ull, 100'003ull}) {
      for (const bool on_first : {false, true}) {
        uint32_t bucket = 0;
        uint64_t next = 0;
        for (uint32_t s = 0; s < shards; ++s) {
          const Share share = ShareOf(s, shards, floats, on_first);
          CHECK(share.first_bucket == bucket && share.last_bucket >= bucket);
          CHECK(share.first_float == next && share.last_float >= next);
          CHECK(share.first_float % 16 == 0 || share.first_float == floats);
          if (on_first && s > 0) CHECK(share.first_float == share.last_float);
          for (uint32_t b = share.first_bucket; b < share.last_bucket; ++b) CHECK(b * shards >> kBucketBits == s);
          bucket = share.last_bucket;
          next = share.last_float;
        }
        CHECK(bucket == kBuckets && next == floats);
      }
    }
  }
}

}  // namespace
}  // namespace elasticctr::ps

int main() {
  using namespace elasticctr::ps;
  TestPullRoundTrip();
  TestPushRoundTrip();
  TestEncodings();
  TestMutations();
  TestRefusals();
  TestShares();
  return 0;
}
