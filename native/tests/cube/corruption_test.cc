// A cube file, damaged in every way: bits flipped in every section, cut, lengthened, spliced, and headers with a
// recomputed checksum. A full check must refuse it; with only the header checked, lookups must never crash.

#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>

#include "cube/index/index.h"
#include "cube/index/view.h"
#include "tests/cube/fixture.h"
#include "util/coding.h"
#include "util/crc32c.h"
#include "util/signals.h"
#include "util/status.h"

namespace elasticctr::cube {
namespace {

std::string path;
std::string good;

bool IsRefused(Residence residence, Check check) {
  try {
    Index::Open(path, residence, check);
  } catch (const Error& e) {
    CHECK(e.code() == Code::kCorruption);
    CHECK(std::string(e.what()).find(path) != std::string::npos);
    return true;
  }
  return false;
}

void CheckRefused(const std::string& bad) {
  if (bad == good) return;
  WriteBytes(path, bad);
  CHECK(IsRefused(Residence::kMemory, Check::kHeader));
  CHECK(IsRefused(Residence::kMapped, Check::kAll));
}

// With only the header checked, lookups may hit damage: they return something or throw Corruption.
void AskUnchecked(const std::string& bad, std::mt19937_64* rng) {
  WriteBytes(path, bad);
  std::shared_ptr<const Index> index;
  try {
    index = Index::Open(path, Residence::kMapped, Check::kHeader);
  } catch (const Error& e) {
    CHECK(e.code() == Code::kCorruption);
    return;
  }
  const LayeredView view({index});
  std::vector<uint64_t> asked(256);
  for (size_t i = 0; i < asked.size(); ++i) asked[i] = i % 2 ? i : (*rng)();
  std::vector<uint8_t> rows(asked.size() * index->info().row_bytes), found(asked.size() / 8);
  size_t hits;
  try {
    view.Lookup(asked.data(), asked.size(), rows.data(), found.data(), &hits);
  } catch (const Error& e) {
    CHECK(e.code() == Code::kCorruption);
  }
}

// Recomputes the checksums of a damaged file, so that only the other checks remain.
void Seal(std::string* bytes) {
  auto* p = reinterpret_cast<uint8_t*>(bytes->data());
  const uint64_t buckets = DecodeFixed64(p + 96), checksums = DecodeFixed64(p + 104);
  if (buckets % kPageBytes == 0 && buckets <= checksums && checksums + 8 <= bytes->size() && buckets >= kPageBytes) {
    uint64_t at = checksums;
    for (uint64_t from = kPageBytes; from < buckets && at + 4 <= bytes->size(); from += kBlockBytes, at += 4) {
      EncodeFixed32(p + at, Crc32c(0, p + from, std::min<uint64_t>(kBlockBytes, buckets - from)));
    }
    for (uint64_t from = buckets; from < checksums && at + 4 <= bytes->size(); from += kBlockBytes, at += 4) {
      EncodeFixed32(p + at, Crc32c(0, p + from, std::min<uint64_t>(kBlockBytes, checksums - from)));
    }
    EncodeFixed32(p + 112, Crc32c(0, p + checksums, bytes->size() - checksums));
  }
  EncodeFixed32(p + 12, 0);
  EncodeFixed32(p + 12, Crc32c(0, p, kPageBytes));
}

// PROMISE: a mapped index file truncated while lookups run | Corruption from then on, no SIGBUS, nothing wrong before
void TestCutWhileMapped() {
  std::set<uint64_t> feasigns;
  for (uint64_t f = 0; f < 100'000; ++f) feasigns.insert(f * 7919);
  const std::vector<uint64_t> asked(feasigns.begin(), feasigns.end());
  for (const size_t kept : {size_t{0}, size_t{4096}, size_t{500'000}}) {
    WriteTestFile(path, {"m/t", 1, 0}, feasigns);
    const LayeredView view({Index::Open(path, Residence::kMapped, Check::kAll)});
    std::vector<uint8_t> rows(asked.size() * kTestRowBytes), found((asked.size() + 7) / 8);
    size_t hits;
    view.Lookup(asked.data(), asked.size(), rows.data(), found.data(), &hits);
    CHECK(hits == asked.size());
    CHECK(::truncate(path.c_str(), static_cast<off_t>(kept)) == 0);
    // Several threads access the missing pages at once.
    std::atomic<int> refused{0};
    std::vector<std::thread> readers;
    for (int i = 0; i < 4; ++i) {
      readers.emplace_back([&] {
        const BlockedSignals blocked;  // as event loops do
        std::vector<uint8_t> mine(rows.size()), mine_found(found.size());
        size_t mine_hits;
        try {
          view.Lookup(asked.data(), asked.size(), mine.data(), mine_found.data(), &mine_hits);
        } catch (const Error& e) {
          refused += e.code() == Code::kCorruption && std::string(e.what()).find("cut short") != std::string::npos;
        }
      });
    }
    for (std::thread& reader : readers) reader.join();
    CHECK(refused == 4);
    std::vector<uint64_t> scanned;
    uint64_t position = 0;
    try {
      view.Scan(&position, 10, &scanned);
      CHECK(false);
    } catch (const Error& e) {
      CHECK(e.code() == Code::kCorruption);
    }
  }
  // Truncating another file does not affect these indexes.
  WriteTestFile(path, {"m/t", 1, 0}, feasigns);
  const LayeredView view({Index::Open(path, Residence::kMapped, Check::kAll)});
  view.CheckWhole();
}

}  // namespace
}  // namespace elasticctr::cube

int main() {
  using namespace elasticctr;
  using namespace elasticctr::cube;
  path = TestPath("corruption");
  TestCutWhileMapped();
  std::set<uint64_t> feasigns, gone;
  for (uint64_t f = 0; f < 300; ++f) (f % 9 == 0 ? gone : feasigns).insert(f);
  WriteTestFile(path, {"m/t", 2, 1}, feasigns, gone);
  good = ReadBytes(path);
  CHECK(!IsRefused(Residence::kMemory, Check::kAll) && !IsRefused(Residence::kMapped, Check::kAll));
  std::mt19937_64 rng(5);

  for (size_t i = 0; i < good.size(); i += 1 + rng() % 3) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << (rng() % 8)));
    CheckRefused(bad);
    if (i % 8 == 0) AskUnchecked(bad, &rng);
  }
  for (size_t length = 0; length < good.size(); length += 1 + rng() % 101) CheckRefused(good.substr(0, length));
  CheckRefused(good + "x");
  CheckRefused(good + good);
  CheckRefused("");
  CheckRefused(std::string(100'000, 'x'));
  for (int round = 0; round < 300; ++round) {
    std::string bad = good;
    const size_t from = rng() % bad.size(), to = rng() % bad.size(), size = rng() % 200;
    bad.replace(to, size, good.substr(from, size));
    CheckRefused(bad);
  }

  // With correct checksums, damage to buckets is found by consistency checks, and so is damage to header fields.
  const uint64_t buckets_at = DecodeFixed64(good.data() + 96);
  const uint64_t buckets = DecodeFixed64(good.data() + 88);
  for (uint64_t i = buckets_at; i < buckets_at + buckets * 64; ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << (rng() % 8)));
    Seal(&bad);
    // Another feasign may be valid and in order by chance; any other change contradicts the rest.
    if ((i - buckets_at) % 64 >= 56) CheckRefused(bad);
    AskUnchecked(bad, &rng);
  }
  for (int round = 0; round < 3000; ++round) {
    std::string bad = good;
    for (uint64_t n = 1 + rng() % 3; n > 0; --n) {
      const size_t at = 8 + rng() % 116;
      if (rng() % 2) {
        bad[at] = static_cast<char>(rng());
      } else {
        EncodeFixed64(bad.data() + at, rng() >> (rng() % 64));
      }
    }
    Seal(&bad);
    WriteBytes(path, bad);
    IsRefused(Residence::kMemory, Check::kAll);
    AskUnchecked(bad, &rng);
  }
  std::remove(path.c_str());
}
