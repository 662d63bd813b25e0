// Crosses, buckets, counts and sets of feasigns, compared with loops written from their definitions.
#include "sample/derive.h"

#include <cmath>
#include <map>
#include <random>

#include "sample/vocabulary.h"
#include "tests/check.h"
#include "util/hash.h"
#include "util/status.h"

namespace elasticctr {
namespace {

ParserSpec MakeSamples() {
  ParserSpec samples;
  samples.sparse = {{"ad"}, {"user"}, {"tag"}};
  samples.dense = {{"x", 2}, {"price", 1, Transform::kLog1p, {}, {}, true}};
  samples.hash_seed = 42;
  return samples;
}

uint64_t HashParts(const std::string& name, std::vector<uint64_t> parts) {
  return Xxh64(parts.data(), parts.size() * 8, SlotSeed(name, 42));
}

// All combinations by definition, ignoring max_values.
std::vector<uint64_t> Combine(const std::string& name, const std::vector<std::vector<uint64_t>>& bags) {
  std::vector<uint64_t> out;
  for (const uint64_t a : bags[0]) {
    for (const uint64_t b : bags[1]) {
      if (bags.size() == 2) {
        out.push_back(HashParts(name, {a, b}));
        continue;
      }
      for (const uint64_t c : bags[2]) out.push_back(HashParts(name, {a, b, c}));
    }
  }
  return out;
}

void TestCrosses() {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    const uint32_t max_values = 1 + random() % 6;
    const bool keep_last = random() % 2;
    std::vector<DerivedSpec> specs(3);
    specs[0] = {"ad_x_user", true, {{0, 1}, max_values, keep_last}, {}};
    specs[1] = {"three", true, {{2, 0, 1}, 4096, false}, {}};
    specs[2] = {"again", true, {{3, 2}, 4096, false}, {}};
    const Deriver deriver(MakeSamples(), specs);
    const size_t n = random() % 4;
    std::vector<uint64_t> values;
    std::vector<int32_t> offsets{0};
    std::vector<std::vector<uint64_t>> bags;
    for (size_t i = 0; i < 3 * n; ++i) {
      bags.emplace_back();
      for (size_t k = random() % 4; k > 0; --k)
        bags.back().push_back(random() % 5 == 0 ? ~0ull - random() % 2 : random());
      values.insert(values.end(), bags.back().begin(), bags.back().end());
      offsets.push_back(static_cast<int32_t>(values.size()));
    }
    const std::vector<float> dense(3 * n);
    const Bags out = deriver.Derive({values, offsets, n}, dense);
    CHECK(out.offset_count == 6 * n + 1);
    const auto bag = [&](size_t slot, size_t i) {
      return std::vector<uint64_t>(out.values.get() + out.offsets[slot * n + i],
                                   out.values.get() + out.offsets[slot * n + i + 1]);
    };
    for (size_t i = 0; i < n; ++i) {
      for (size_t slot = 0; slot < 3; ++slot) CHECK(bag(slot, i) == bags[slot * n + i]);
      std::vector<uint64_t> expected = Combine("ad_x_user", {bags[i], bags[n + i]});
      if (expected.size() > max_values) {
        if (keep_last) {
          expected.erase(expected.begin(), expected.end() - max_values);
        } else {
          expected.resize(max_values);
        }
      }
      CHECK(bag(3, i) == expected);
      CHECK(bag(4, i) == Combine("three", {bags[2 * n + i], bags[i], bags[n + i]}));
      CHECK(bag(5, i) == Combine("again", {expected, bags[2 * n + i]}));
    }
  }
}

void TestBuckets() {
  std::vector<DerivedSpec> specs(2);
  specs[0] = {"x1", false, {}, {0, 1, {-1.0, 0.0, 2.5}}};
  specs[1] = {"price_bucket", false, {}, {1, 0, {1, 3, 7, 15}}};
  const Deriver deriver(MakeSamples(), specs);
  const auto of = [&](size_t slot, uint64_t bucket) { return Xxh64(&bucket, 8, SlotSeed(specs[slot].name, 42)); };
  const auto put = [&](float x, float price) {
    const std::vector<int32_t> offsets{0, 0, 0, 0};
    const std::vector<float> dense{9, x, price};
    const Bags out = deriver.Derive({{}, offsets, 1}, dense);
    CHECK(out.value_count == 2);
    return std::pair(out.values[0], out.values[1]);
  };
  const std::vector<std::pair<float, uint64_t>> plain{{-2, 0},   {-1, 1},   {-0.5, 1},  {0, 2},
                                                      {2.4f, 2}, {2.5f, 3}, {1e30f, 3}, {-1e30f, 0}};
  for (const auto& [x, bucket] : plain) CHECK(put(x, 0).first == of(0, bucket));
  for (int price = 0; price < 40; ++price) {
    const auto expected = static_cast<uint64_t>(price < 1 ? 0 : price < 3 ? 1 : price < 7 ? 2 : price < 15 ? 3 : 4);
    const float exact = std::log1pf(static_cast<float>(price));
    CHECK(put(0, exact).second == of(1, expected));
    // One bit off, as another library may round.
    if (price > 0) CHECK(put(0, std::nextafterf(exact, 0.0f)).second == of(1, expected));
  }
  CHECK(put(-0.0f, -0.0f).first == of(0, DerivedSlot::kMissing));
  CHECK(put(-0.0f, -0.0f).second == of(1, DerivedSlot::kMissing));
}

template <typename Work>
bool Throws(Code code, Work&& work) {
  try {
    work();
  } catch (const Error& e) {
    return e.code() == code;
  }
  return false;
}

void TestRefusals() {
  const auto make = [](DerivedSpec spec) { Deriver(MakeSamples(), {std::move(spec)}); };
  CHECK(Throws(Code::kConfig, [&] { make({"c", true, {{0}, 1, false}, {}}); }));
  CHECK(Throws(Code::kConfig, [&] { make({"c", true, {{0, 3}, 1, false}, {}}); }));
  CHECK(Throws(Code::kConfig, [&] { make({"c", true, {{0, 1}, 0, false}, {}}); }));
  CHECK(Throws(Code::kConfig, [&] { make({"b", false, {}, {2, 0, {1}}}); }));
  CHECK(Throws(Code::kConfig, [&] { make({"b", false, {}, {1, 1, {1}}}); }));
  CHECK(Throws(Code::kConfig, [&] { make({"b", false, {}, {0, 0, {2, 1}}}); }));
  CHECK(Throws(Code::kConfig, [&] { make({"b", false, {}, {0, 0, {1e300}}}); }));
  const Deriver deriver(MakeSamples(), {{"c", true, {{0, 1}, 4, false}, {}}});
  const std::vector<uint64_t> values(4);
  const std::vector<float> dense(3);
  for (const auto& offsets : std::vector<std::vector<int32_t>>{{0, 1, 2}, {0, 2, 1, 3}, {0, 1, 2, 5}, {-1, 0, 1, 2}}) {
    CHECK(Throws(offsets.size() == 4 && offsets[0] == 0 ? Code::kCorruption : Code::kFailedPrecondition,
                 [&] { deriver.Derive({values, offsets, 1}, dense); }));
  }
}

void TestVocabulary() {
  std::mt19937_64 random(3);
  std::map<uint64_t, uint32_t> counts;
  FeasignCounter counter;
  for (int round = 0; round < 50; ++round) {
    std::vector<uint64_t> values(random() % 3000);
    for (uint64_t& value : values) {
      const uint64_t number = random() % (1 + random() % 5000);
      value = number % 7 == 0 ? number : Mix64(number);
      ++counts[value];
    }
    counter.Add(values);
  }
  CHECK(counter.size() == counts.size() && counts.contains(0));
  for (const uint32_t min_count : {1u, 2u, 20u, 1u << 30}) {
    std::vector<uint64_t> expected;
    for (const auto& [feasign, count] : counts) {
      if (count >= min_count) expected.push_back(feasign);
    }
    const std::vector<uint64_t> kept = counter.Take(min_count);
    CHECK(kept == expected);
    const FeasignSet set(kept);
    CHECK(set.size() == kept.size());
    std::vector<uint64_t> values;
    for (const auto& [feasign, count] : counts) values.push_back(feasign);
    const std::vector<uint64_t> before = values;
    CHECK(set.Replace(values, 77) == counts.size() - kept.size());
    for (size_t i = 0; i < values.size(); ++i) CHECK(values[i] == (counts[before[i]] >= min_count ? before[i] : 77));
  }
}

}  // namespace
}  // namespace elasticctr

int main() {
  elasticctr::TestCrosses();
  elasticctr::TestBuckets();
  elasticctr::TestRefusals();
  elasticctr::TestVocabulary();
}
