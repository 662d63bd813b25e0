// Cube files: their bytes, lookups against a map for all widths, layers and batch sizes, merges and compaction.

#include "cube/index/index.h"

#include <cmath>
#include <map>
#include <random>

#include "cube/index/encoding.h"
#include "cube/index/lookup.h"
#include "cube/index/view.h"
#include "tests/cube/fixture.h"
#include "util/coding.h"
#include "util/crc32c.h"
#include "util/status.h"

namespace elasticctr::cube {
namespace {

using Layer = std::shared_ptr<const Index>;

// The bytes that docs/formats/cube-file.md specifies, parsed here independently of the library.
void TestGoldenBytes() {
  const std::string path = TestPath("golden");
  WriteTestFile(path, {"m/t", 7, 6}, {1, 2, 3}, {4});
  const std::string file = ReadBytes(path);
  const auto* p = reinterpret_cast<const uint8_t*>(file.data());
  CHECK(file.size() == 3 * 4096 + 2 * 4);
  CHECK(file.compare(0, 8, "ECTRCUBE") == 0);
  CHECK(DecodeFixed32(p + 8) == 1 && DecodeFixed64(p + 16) == file.size());
  CHECK(p[24] == 1 && p[25] == 0 && p[26] == 0 && p[27] == 0);
  CHECK(DecodeFixed32(p + 28) == 0 && DecodeFixed32(p + 32) == kTestRowBytes);
  CHECK(DecodeFixed32(p + 36) == 0 && DecodeFixed32(p + 40) == 1 && DecodeFixed32(p + 44) == 1 << 20);
  CHECK(DecodeFixed64(p + 48) == 7 && DecodeFixed64(p + 56) == 6);
  CHECK(DecodeFixed64(p + 64) == 3 && DecodeFixed64(p + 72) == 1);
  CHECK(DecodeFixed64(p + 80) == 1 && DecodeFixed64(p + 88) == 1);
  CHECK(DecodeFixed64(p + 96) == 8192 && DecodeFixed64(p + 104) == 12288);
  CHECK(p[116] == 3 && p[117] == 0 && file.compare(118, 3, "m/t") == 0);
  std::string header = file.substr(0, 4096);
  EncodeFixed32(header.data() + 12, 0);
  CHECK(DecodeFixed32(p + 12) == Crc32c(0, header.data(), 4096));
  CHECK(DecodeFixed32(p + 12288) == Crc32c(0, p + 4096, 4096) && DecodeFixed32(p + 12292) == Crc32c(0, p + 8192, 4096));
  CHECK(DecodeFixed32(p + 112) == Crc32c(0, p + 12288, 8));
  // One bucket: four feasigns by place, one of them a tombstone; rows in the same order.
  std::vector<uint64_t> order{1, 2, 3, 4};
  std::sort(order.begin(), order.end(), [](uint64_t a, uint64_t b) { return Mix64(a) << 12 < Mix64(b) << 12; });
  const uint8_t* bucket = p + 8192;
  size_t row = 0;
  for (size_t i = 0; i < 4; ++i) {
    CHECK(DecodeFixed64(bucket + 8 * i) == order[i]);
    CHECK((bucket[62] >> i & 1) == (order[i] == 4));
    if (order[i] == 4) continue;
    uint8_t expected[kTestRowBytes];
    FillRow(7, order[i], expected);
    CHECK(std::memcmp(p + 4096 + row++ * kTestRowBytes, expected, kTestRowBytes) == 0);
  }
  for (size_t i = 4; i < 7; ++i) CHECK(DecodeFixed64(bucket + 8 * i) == 0);
  CHECK(DecodeFixed32(bucket + 56) == 0 && bucket[60] == 0 && bucket[61] == 4 && bucket[63] == 0);
  std::remove(path.c_str());
}

// Looks up `asked` in batches of every small size and all at once.
void CheckAnswers(const TableView& view, const std::map<uint64_t, uint64_t>& truth, std::vector<uint64_t> asked) {
  for (const size_t batch : {size_t{1}, size_t{7}, size_t{15}, size_t{16}, size_t{17}, size_t{100}, asked.size()}) {
    for (size_t at = 0; at < asked.size(); at += batch) {
      const size_t n = std::min(batch, asked.size() - at);
      std::vector<uint8_t> rows(n * kTestRowBytes, 0xEE), found((n + 7) / 8, 0xEE);
      size_t hits = 0, expected_hits = 0;
      CHECK(view.Lookup(asked.data() + at, n, rows.data(), found.data(), &hits) == LookupResult::kOk);
      for (size_t i = 0; i < n; ++i) {
        const auto it = truth.find(asked[at + i]);
        uint8_t expected[kTestRowBytes] = {};
        if (it != truth.end()) FillRow(it->second, it->first, expected);
        CHECK((found[i / 8] >> (i % 8) & 1) == (it != truth.end()));
        CHECK(std::memcmp(rows.data() + i * kTestRowBytes, expected, kTestRowBytes) == 0);
        expected_hits += it != truth.end();
      }
      CHECK(hits == expected_hits);
      std::vector<uint8_t> portable_rows(rows.size(), 0xEE), portable_found(found.size(), 0xEE);
      CHECK(LookupPortable(static_cast<const LayeredView&>(view).flat(), asked.data() + at, n, portable_rows.data(),
                           portable_found.data(), &hits) == LookupResult::kOk);
      CHECK(hits == expected_hits && portable_rows == rows && portable_found == found);
    }
  }
}

void TestLayersAgainstMap(uint32_t shard, uint32_t shards, Sharding sharding, uint64_t seed) {
  std::mt19937_64 rng(seed);
  const std::string path = TestPath("layers");
  std::vector<uint64_t> universe{0, ~uint64_t{0}};
  for (int i = 0; i < 3000; ++i) universe.push_back(i % 2 ? rng() : static_cast<uint64_t>(i));
  std::erase_if(universe, [&](uint64_t f) { return OwnerOf(f, sharding, shards) != shard; });
  std::map<uint64_t, uint64_t> truth;
  std::shared_ptr<const LayeredView> view;
  std::vector<Layer> all;  // oldest first
  for (uint64_t version = 1; version <= 12; ++version) {
    std::set<uint64_t> written, gone;
    for (const uint64_t f : universe) {
      const uint64_t dice = rng() % 64;
      if (version == 1 ? dice < 40 : dice < 1 + version % 5) written.insert(f);
      if (version > 1 && dice == 63) gone.insert(f);
    }
    WriteTestFile(path, {"m/t", version, version - 1, shard, shards, sharding}, written, gone);
    auto index = Index::Open(path, version % 2 ? Residence::kMemory : Residence::kMapped, Check::kAll);
    all.push_back(index);
    view = view == nullptr ? std::make_shared<const LayeredView>(std::vector<Layer>{index}) : Stack(index, *view);
    for (const uint64_t f : gone) truth.erase(f);
    for (const uint64_t f : written) truth[f] = version;
    CHECK(view->layers().size() <= 4);
    CheckAnswers(*view, truth, universe);
  }
  const std::string compacted = TestPath("compacted");
  const IndexInfo base = Index::Compact({all.rbegin(), all.rend()}, all.back()->info(), compacted);
  CHECK(base.rows == truth.size() && base.tombstones == 0 && base.kind == Kind::kBase && base.parent == 0);
  CheckAnswers(LayeredView({Index::Open(compacted, Residence::kMapped, Check::kAll)}), truth, universe);
  std::remove(path.c_str());
  std::remove(compacted.c_str());
}

// Many feasigns of one home overflow into several buckets, also past the last home.
void TestSpills() {
  const auto unmix = [](uint64_t x) {  // the inverse of Mix64
    x ^= x >> 31 ^ x >> 62;
    x *= 0x319642B2D24D8EC3ULL;
    x ^= x >> 27 ^ x >> 54;
    x *= 0x96DE1B173F119089ULL;
    return x ^ x >> 30 ^ x >> 60;
  };
  CHECK(Mix64(unmix(12345)) == 12345);
  const std::string path = TestPath("spills");
  std::set<uint64_t> feasigns;
  std::map<uint64_t, uint64_t> truth;
  std::vector<uint64_t> asked;
  for (uint64_t i = 0; i < 400; ++i) {
    const uint64_t place = i < 200 ? ~uint64_t{0} - (i << 12) : i << 52;  // half of them at the very end
    const uint64_t f = unmix(place >> 12 | (i % 16) << 52);
    feasigns.insert(f);
    truth[f] = 1;
    asked.push_back(f);
    asked.push_back(f ^ 1);
  }
  const IndexInfo info = WriteTestFile(path, {}, feasigns);
  CHECK(info.buckets > info.homes + 10);
  std::erase_if(asked, [&](uint64_t f) { return truth.count(f) == 0 && feasigns.count(f) != 0; });
  CheckAnswers(LayeredView({Index::Open(path, Residence::kMemory, Check::kAll)}), truth, asked);
  std::remove(path.c_str());
}

void TestWidths() {
  for (const uint32_t width :
       {1u, 3u, 4u, 12u, 16u, 20u, 32u, 36u, 40u, 44u, 64u, 68u, 100u, 128u, 256u, 1000u, 65536u}) {
    const std::string path = TestPath("width");
    IndexInfo info;
    info.name = "m/t";
    info.row_bytes = width;
    info.version = 1;
    info.rows = 50;
    std::vector<uint8_t> rows(50 * width);
    std::vector<Entry> entries;
    for (uint64_t f = 0; f < 50; ++f) {
      for (uint32_t j = 0; j < width; ++j) rows[f * width + j] = static_cast<uint8_t>(f * 5 + j);
      entries.push_back({PlaceOf(f), f, rows.data() + f * width});
    }
    std::sort(entries.begin(), entries.end());
    Writer writer(path, info);
    writer.Add(entries.data(), entries.size());
    writer.Finish();
    const LayeredView view({Index::Open(path, Residence::kMapped, Check::kAll)});
    std::vector<uint64_t> asked;
    for (uint64_t f = 0; f < 60; ++f) asked.push_back(f);
    std::vector<uint8_t> got(60 * width, 0xEE), found(8);
    size_t hits;
    CHECK(view.Lookup(asked.data(), 60, got.data(), found.data(), &hits) == LookupResult::kOk && hits == 50);
    CHECK(std::memcmp(got.data(), rows.data(), rows.size()) == 0);
    for (size_t i = rows.size(); i < got.size(); ++i) CHECK(got[i] == 0);
    std::remove(path.c_str());
  }
}

void TestWrongShardIsSaid() {
  const std::string path = TestPath("wrong_shard");
  std::set<uint64_t> feasigns;
  for (uint64_t f = 0; f < 100; ++f) feasigns.insert(f);
  for (const Sharding sharding : {Sharding::kBuckets, Sharding::kModulo}) {
    WriteTestFile(path, {"m/t", 1, 0, 1, 3, sharding}, feasigns);
    const LayeredView view({Index::Open(path, Residence::kMapped, Check::kAll)});
    for (const uint64_t f : feasigns) {
      uint8_t row[kTestRowBytes], found;
      size_t hits;
      const bool owned = OwnerOf(f, sharding, 3) == 1;
      CHECK((view.Lookup(&f, 1, row, &found, &hits) == LookupResult::kOk) == owned);
    }
  }
  std::remove(path.c_str());
}

void TestWriterRefuses() {
  const std::string path = TestPath("refuses");
  IndexInfo info;
  info.name = "m/t";
  info.row_bytes = 1;
  info.version = 1;
  info.rows = 2;
  const uint8_t row = 7;
  Entry entries[] = {{PlaceOf(1), 1, &row}, {PlaceOf(2), 2, &row}};
  std::sort(entries, entries + 2);
  const auto throws = [&](Code code, auto&& act) {
    try {
      act();
    } catch (const Error& e) {
      CHECK(e.code() == code);
      return;
    }
    CHECK(false);
  };
  throws(Code::kInternal, [&] {
    Writer w(path, info);
    w.Add(entries, 1);
    w.Finish();
  });
  throws(Code::kInternal, [&] {
    Writer w(path, info);
    w.Add(entries + 1, 1);
    w.Add(entries, 1);
  });
  throws(Code::kInternal, [&] {
    Writer w(path, info);
    w.Add(entries, 1);
    w.Add(entries, 1);
  });
  info.name = std::string(256, 'x');
  throws(Code::kConfig, [&] { Writer w(path, info); });
  CHECK(access(path.c_str(), F_OK) != 0 && access((path + ".tmp").c_str(), F_OK) != 0);
}

void TestEncodings() {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal(0.0f, 0.1f);
  constexpr uint32_t kDim = 11;
  std::vector<float> values(200 * kDim), back(values.size());
  for (float& v : values) v = normal(rng);
  for (uint32_t i = 0; i < kDim; ++i) values[i] = 0.0f;
  for (const Encoding encoding : {Encoding::kFloat32, Encoding::kFloat16, Encoding::kInt8}) {
    std::vector<uint8_t> rows(200 * RowBytes(encoding, kDim));
    CHECK(EncodeRows(values.data(), 200, kDim, encoding, rows.data()) == 0);
    DecodeRows(rows.data(), 200, kDim, encoding, back.data());
    for (size_t row = 0; row < 200; ++row) {
      float largest = 0;
      for (uint32_t j = 0; j < kDim; ++j) largest = std::max(largest, std::fabs(values[row * kDim + j]));
      for (uint32_t j = 0; j < kDim; ++j) {
        const float v = values[row * kDim + j], error = std::fabs(v - back[row * kDim + j]);
        const float bound = encoding == Encoding::kFloat32   ? 0.0f
                            : encoding == Encoding::kFloat16 ? std::fabs(v) * 0x1p-11f + 0x1p-25f
                                                             : largest / 127.0f * 0.50001f;
        CHECK(error <= bound);
      }
    }
  }
  const float bad[] = {1.0f, INFINITY, NAN, 70000.0f};
  uint8_t rows[16];
  CHECK(EncodeRows(bad, 1, 4, Encoding::kFloat16, rows) == 3);
  CHECK(EncodeRows(bad, 1, 4, Encoding::kInt8, rows) == 2);
}

}  // namespace
}  // namespace elasticctr::cube

int main() {
  using namespace elasticctr::cube;
  TestGoldenBytes();
  TestLayersAgainstMap(0, 1, Sharding::kBuckets, 1);
  TestLayersAgainstMap(1, 2, Sharding::kBuckets, 2);
  TestLayersAgainstMap(6, 7, Sharding::kModulo, 3);
  TestSpills();
  TestWidths();
  TestWrongShardIsSaid();
  TestWriterRefuses();
  TestEncodings();
}
