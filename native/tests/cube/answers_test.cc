// The client's parts: invalid answers and reports, a cache compared with a map, and a histogram.
#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include "cube/client/client.h"
#include "cube/client/load.h"
#include "tests/check.h"
#include "tests/cube/client_fixture.h"
#include "util/hash.h"

namespace elasticctr::cube {
namespace {

uint64_t TableHash() { return Xxh64(kTable, sizeof kTable - 1, 0); }

// Feeds bytes in pieces of random size, as a socket would. True: a complete answer.
bool Feed(AnswerReader& reader, const std::vector<uint8_t>& bytes, std::mt19937_64& rng) {
  size_t at = 0;
  while (at < bytes.size()) {
    iovec buffers[2];
    const int n = reader.Buffers(buffers);
    CHECK(n >= 1);
    size_t piece = std::min<size_t>(bytes.size() - at, 1 + rng() % 200);
    size_t given = 0;
    for (int i = 0; i < n && given < piece; ++i) {
      const size_t part = std::min(piece - given, buffers[i].iov_len);
      std::memcpy(buffers[i].iov_base, bytes.data() + at + given, part);
      given += part;
    }
    CHECK(given > 0);
    at += given;
    if (reader.Consume(given)) return true;
  }
  return false;
}

void TestAnswers() {
  std::mt19937_64 rng(11);
  AnswerReader reader;
  int whole = 0, refused = 0;
  for (int round = 0; round < 30000; ++round) {
    std::vector<uint64_t> keys(rng() % 70);
    for (uint64_t& key : keys) key = rng();
    wire::Header request;
    request.id = rng();
    request.table = TableHash();
    request.opcode = static_cast<uint8_t>(wire::Opcode::kLookup);
    std::vector<uint8_t> bytes = LookupFrame(request, keys.data(), keys.size(), 7);
    if (rng() % 4 == 0) {  // an error instead
      wire::Header header = request;
      header.status = static_cast<uint8_t>(10 + rng() % 10);
      bytes = Frame(header, std::vector<uint8_t>(rng() % 300, 'x'));
    }
    const bool is_damaged = rng() % 2 == 0;
    for (uint64_t flips = is_damaged ? 1 + rng() % 3 : 0; flips > 0; --flips) {
      bytes[rng() % std::min<size_t>(bytes.size(), 64)] = static_cast<uint8_t>(rng());
    }
    if (is_damaged && rng() % 4 == 0) bytes.resize(rng() % (bytes.size() + 1));
    std::vector<uint8_t> rows(keys.size() * kRowBytes);
    const bool is_direct = rng() % 2 == 0 && !rows.empty();
    reader.Start({wire::Opcode::kLookup, request.id, request.table, 7, keys.size(), kRowBytes,
                  is_direct ? rows.data() : nullptr});
    try {
      if (!Feed(reader, bytes, rng)) continue;
      ++whole;
      if (is_damaged || reader.header().status != 0) continue;
      for (size_t i = 0; i < keys.size(); ++i) {
        float row[kDim] = {};
        if (IsThere(keys[i])) MakeRow(7, keys[i], row);
        CHECK((reader.found()[i / 8] >> (i % 8) & 1) == IsThere(keys[i]));
        CHECK(std::memcmp(reader.rows() + i * kRowBytes, row, kRowBytes) == 0);
      }
      CHECK(reader.active() == 7);
      CHECK(!is_direct || reader.rows() == rows.data());
    } catch (const Error& e) {
      CHECK(is_damaged);
      CHECK(e.code() == Code::kCorruption || e.code() == Code::kFailedPrecondition);
      ++refused;
    }
  }
  CHECK(whole > 10000 && refused > 3000);
}

void TestReports() {
  std::mt19937_64 rng(12);
  const std::string good = Report(1, 2, 5);
  CHECK(ParseReport(good)[0].versions[1].tables[0].shard == 1);
  for (int round = 0; round < 20000; ++round) {
    std::string text = good;
    for (uint64_t flips = 1 + rng() % 4; flips > 0; --flips) text[rng() % text.size()] = static_cast<char>(rng());
    if (rng() % 8 == 0) text.resize(rng() % text.size());
    for (const bool as_hello : {false, true}) {
      try {
        if (as_hello) {
          ParseHello(text);
        } else {
          ParseReport(text);
        }
      } catch (const Error& e) {
        CHECK(e.code() == Code::kCorruption);
      }
    }
  }
}

void TestCache() {
  std::mt19937_64 rng(13);
  HotCache cache(64 << 10);
  CHECK(cache.bytes() <= 64 << 10);
  std::map<std::pair<uint64_t, uint64_t>, std::vector<uint8_t>> truth;
  uint64_t hits = 0;
  for (int round = 0; round < 200'000; ++round) {
    const uint64_t version = 1 + rng() % 2, feasign = std::min(rng() % 3000, rng() % 3000);
    const auto row_bytes = static_cast<uint32_t>(20 + feasign % 3 * 40);
    auto& row = truth[{version, feasign}];
    if (row.empty()) {
      row.resize(row_bytes);
      for (uint8_t& byte : row) byte = static_cast<uint8_t>(rng());
    }
    std::vector<uint8_t> got(row_bytes);
    switch (cache.Get({version, feasign, 9}, got.data(), row_bytes)) {
      case HotCache::Result::kUnknown:
        cache.Put({version, feasign, 9}, IsThere(feasign) ? row.data() : nullptr, row_bytes);
        break;
      case HotCache::Result::kFound:
        CHECK(IsThere(feasign) && got == row);
        ++hits;
        break;
      case HotCache::Result::kMissing: CHECK(!IsThere(feasign)); break;
    }
    uint8_t other[100];
    CHECK(cache.Get({version, feasign, 10}, other, row_bytes) == HotCache::Result::kUnknown);
  }
  CHECK(hits > 10'000);
  HotCache none(100);
  none.Put({1, 2, 3}, nullptr, 0);
  uint8_t row[8];
  none.Get({1, 2, 3}, row, 8);
}

void TestHistogram() {
  uint64_t before = 0;
  for (uint64_t ns = 0; ns < 1 << 20; ns += 1 + ns / 100) {
    const size_t bucket = TimeHistogram::BucketOf(ns);
    CHECK(bucket >= before && bucket < TimeHistogram::kBuckets);
    CHECK(TimeHistogram::UpperEdge(bucket) >= ns && TimeHistogram::UpperEdge(bucket) <= ns + ns / 31 + 1);
    before = bucket;
  }
  CHECK(TimeHistogram::BucketOf(UINT64_MAX) < TimeHistogram::kBuckets);
  TimeHistogram times;
  for (uint64_t i = 1; i <= 1000; ++i) times.Add(i * 1000);
  CHECK(times.Percentile(0.5) >= 500'000 && times.Percentile(0.5) < 520'000);
  CHECK(times.Percentile(0.999) >= 999'000 && times.Percentile(0.999) < 1'035'000);
}

}  // namespace
}  // namespace elasticctr::cube

int main() {
  using namespace elasticctr::cube;
  TestAnswers();
  TestReports();
  TestCache();
  TestHistogram();
}
