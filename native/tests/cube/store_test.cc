// Lookups while versions are loaded, activated and retired: every answer is from one version, and readers never wait.

#include "cube/server/store.h"

#include <atomic>
#include <thread>

#include "cube/build/builder.h"
#include "tests/cube/fixture.h"
#include "util/status.h"

namespace elasticctr::cube {
namespace {

std::string PathOf(uint64_t version) { return TestPath("store") + "_" + std::to_string(version); }

VersionFiles FilesOf(uint64_t version, uint64_t parent) {
  return {.model = "m", .version = version, .parent = parent, .files = {{"t", PathOf(version)}}};
}

Code CodeOf(auto&& act) {
  try {
    act();
  } catch (const Error& e) {
    return e.code();
  }
  return Code{};
}

void TestRules() {
  std::set<uint64_t> feasigns;
  for (uint64_t f = 0; f < 50; ++f) feasigns.insert(f);
  WriteTestFile(PathOf(1), {"m/t", 1, 0}, feasigns);
  WriteTestFile(PathOf(2), {"m/t", 2, 1}, {1, 2}, {3});
  WriteTestFile(PathOf(4), {"m/t", 4, 3}, {1});
  WriteTestFile(PathOf(5), {"m/u", 5, 1}, {1});
  const auto store = Store::Make(Residence::kMemory, Check::kAll);
  const uint64_t table = store->current()->TableHash("m/t");
  CHECK(!store->current()->Find(table, 0).table_known);
  CHECK(CodeOf([&] { store->Load(FilesOf(2, 1)); }) == Code::kFailedPrecondition);
  store->Load(FilesOf(1, 0));
  const uint64_t before = store->generation();
  store->Load(FilesOf(1, 0));
  CHECK(store->generation() == before);
  CHECK(store->current()->Find(table, 0).view == nullptr && store->current()->Find(table, 0).table_known);
  CHECK(store->current()->Find(table, 1).view != nullptr);
  store->Load(FilesOf(2, 1));
  CHECK(CodeOf([&] { store->Load(FilesOf(4, 3)); }) == Code::kFailedPrecondition);
  CHECK(CodeOf([&] { store->Load({"m", 4, 2, {{"t", PathOf(4)}}}); }) == Code::kCorruption);          // says parent 3
  CHECK(CodeOf([&] { store->Load({"m", 3, 2, {{"t", PathOf(2)}}}); }) == Code::kCorruption);          // says version 2
  CHECK(CodeOf([&] { store->Load({"n", 1, 0, {{"t", PathOf(1)}}}); }) == Code::kCorruption);          // says model m
  CHECK(CodeOf([&] { store->Load({"m", 5, 1, {{"u", PathOf(5)}}}); }) == Code::kFailedPrecondition);  // no base of u
  CHECK(CodeOf([&] { store->Load({"m", 9, 0, {}}); }) == Code::kData);
  CHECK(CodeOf([&] { store->Load({"m", 9, 0, {{"t", PathOf(9)}}}); }) == Code::kNotFound);
  CHECK(CodeOf([&] { store->Activate("m", 9); }) == Code::kNotFound);
  store->Activate("m", 2);
  store->Activate("m", 1);
  CHECK(store->current()->models()[0].active == 1 && store->current()->models()[0].previous == 2);
  CHECK(CodeOf([&] { store->Retire("m", 1); }) == Code::kFailedPrecondition);
  store->Activate("m", 2);
  store->Retire("m", 1);
  CHECK(CodeOf([&] { store->Retire("m", 1); }) == Code::kNotFound);
  CHECK(store->current()->models()[0].previous == 0);
  const auto catalog = store->current();
  const Catalog::Found found = catalog->Find(table, 0);
  CHECK(found.version == 2 && found.active == 2 && found.view != nullptr);
  const uint64_t asked[] = {1, 3, 5};
  uint8_t rows[3 * kTestRowBytes], bits;
  size_t hits;
  CHECK(found.view->Lookup(asked, 3, rows, &bits, &hits) == LookupResult::kOk && hits == 2 && bits == 0b101);
  // The same number with other contents.
  WriteTestFile(PathOf(2), {"m/t", 2, 1}, {1});
  CHECK(CodeOf([&] { store->Load(FilesOf(2, 1)); }) == Code::kAlreadyExists);
  for (const uint64_t v : {1, 2, 4, 5}) std::remove(PathOf(v).c_str());
}

// Every row of version v contains v. Bases are odd, deltas over them even and remove every third feasign.
// PROMISE: a version is loaded under another one's number | it takes its place when activated, and never mixes with it
void TestReplacement() {
  const auto named = [](uint64_t version, uint64_t parent, std::string identity, std::string below = {}) {
    VersionFiles files = FilesOf(version, parent);
    files.identity = std::move(identity);
    files.parent_identity = std::move(below);
    return files;
  };
  const auto store = Store::Make(Residence::kMemory, Check::kAll);
  const uint64_t table = store->current()->TableHash("m/t");
  const auto rows_of = [&](uint64_t version) { return store->current()->Find(table, version).view->rows(); };
  WriteTestFile(PathOf(1), {"m/t", 1, 0}, {1, 2, 3});
  WriteTestFile(PathOf(2), {"m/t", 2, 1}, {4});
  store->Load(named(1, 0, "a"));
  store->Load(named(2, 1, "b", "a"));
  store->Activate("m", 2);
  // Not active: replaced at once. A version based on the old one keeps it; a version built for the new one finds it.
  WriteTestFile(PathOf(1), {"m/t", 1, 0}, {1});
  store->Load(named(1, 0, "c"));
  CHECK(rows_of(1) == 1 && rows_of(2) == 4);
  CHECK(CodeOf([&] { store->Load(named(2, 1, "d", "a")); }) == Code::kFailedPrecondition);
  // Active: stays beside it until it is activated again.
  store->Load(named(2, 1, "d", "c"));
  CHECK(rows_of(2) == 4 && rows_of(0) == 4 && store->current()->models()[0].next->identity == "d");
  store->Load(named(2, 1, "d", "c"));
  store->Activate("m", 2);
  const auto catalog = store->current();
  CHECK(rows_of(2) == 2 && catalog->models()[0].next == nullptr && catalog->models()[0].versions[1]->identity == "d");
  CHECK(catalog->models()[0].active == 2 && catalog->models()[0].previous == 0);
  for (const uint64_t v : {1, 2}) std::remove(PathOf(v).c_str());
}

void TestReadersDuringSwaps() {
  constexpr uint64_t kVersions = 40;
  std::vector<uint64_t> asked;
  std::set<uint64_t> all, thirds;
  for (uint64_t f = 0; f < 256; ++f) {
    asked.push_back(f * 0x9E3779B97F4A7C15ULL);
    all.insert(asked.back());
    if (f % 3 == 0) thirds.insert(asked.back());
  }
  for (uint64_t v = 1; v <= kVersions; ++v) {
    v % 2 ? WriteTestFile(PathOf(v), {"m/t", v, 0}, all) : WriteTestFile(PathOf(v), {"m/t", v, v - 1}, {}, thirds);
  }
  const auto store = Store::Make(Residence::kMemory, Check::kAll);
  store->Load(FilesOf(1, 0));
  store->Activate("m", 1);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> lookups{0};
  const auto read = [&] {
    auto catalog = store->current();
    uint64_t generation = 0;
    const uint64_t table = catalog->TableHash("m/t");
    std::vector<uint8_t> rows(asked.size() * kTestRowBytes), found(asked.size() / 8);
    while (!stop.load()) {
      if (store->generation() != generation) {
        generation = store->generation();
        catalog = store->current();
      }
      const Catalog::Found answer = catalog->Find(table, 0);
      CHECK(answer.view != nullptr);
      size_t hits;
      CHECK(answer.view->Lookup(asked.data(), asked.size(), rows.data(), found.data(), &hits) == LookupResult::kOk);
      const bool is_delta = answer.version % 2 == 0;
      CHECK(hits == (is_delta ? all.size() - thirds.size() : all.size()));
      for (size_t i = 0; i < asked.size(); ++i) {
        uint8_t expected[kTestRowBytes] = {};
        if (!is_delta || i % 3 != 0) FillRow(is_delta ? answer.version - 1 : answer.version, asked[i], expected);
        CHECK(std::memcmp(rows.data() + i * kTestRowBytes, expected, kTestRowBytes) == 0);
      }
      lookups.fetch_add(1);
    }
  };
  std::thread first(read), second(read);
  for (uint64_t v = 2; v <= kVersions; ++v) {
    store->Load(FilesOf(v, v % 2 ? 0 : v - 1));
    store->Activate("m", v);
    store->Retire("m", v - 1);
  }
  while (lookups.load() < 100) std::this_thread::yield();
  stop = true;
  first.join();
  second.join();
  for (uint64_t v = 1; v <= kVersions; ++v) std::remove(PathOf(v).c_str());
}

void TestBuilderThreads() {
  BuilderOptions options;
  options.info.name = "m/t";
  options.info.row_bytes = kTestRowBytes;
  options.info.version = 1;
  options.info.shards = 3;
  options.run_directory = "/tmp";
  options.memory_bytes = uint64_t{16} << 20;
  options.threads = 4;
  Builder builder(options);
  std::vector<uint64_t> feasigns;
  std::vector<uint8_t> rows;
  for (uint64_t round = 0; round < 12; ++round) {
    feasigns.clear();
    rows.resize(60'000 * kTestRowBytes);
    for (uint64_t i = 0; i < 60'000; ++i) {
      feasigns.push_back(round * 50'000 + i);  // a sixth is repeated
      FillRow(round + 1, feasigns.back(), rows.data() + i * kTestRowBytes);
    }
    builder.Add(feasigns.data(), rows.data(), feasigns.size());
  }
  std::vector<std::string> paths{PathOf(100), PathOf(101), PathOf(102)};
  const BuilderResult result = builder.Finish(paths);
  CHECK(result.duplicates == 110'000 && result.run_bytes > 0);
  uint64_t total = 0;
  for (uint32_t shard = 0; shard < 3; ++shard) {
    const auto index = Index::Open(paths[shard], Residence::kMapped, Check::kAll);
    total += index->info().rows;
    for (Cursor cursor(index->image()); !cursor.is_done(); cursor.Next()) {
      const uint64_t f = cursor.entry().feasign;
      uint8_t expected[kTestRowBytes];
      FillRow(std::min<uint64_t>(f / 50'000, 11) + 1, f, expected);
      CHECK(std::memcmp(cursor.entry().row, expected, kTestRowBytes) == 0);
    }
    std::remove(paths[shard].c_str());
  }
  CHECK(total == 610'000);
}

}  // namespace
}  // namespace elasticctr::cube

int main() {
  using namespace elasticctr::cube;
  TestRules();
  TestReplacement();
  TestReadersDuringSwaps();
  TestBuilderThreads();
}
