// A shard's files: loaded by the same or another number of shards, damaged, and crafted.
#include <algorithm>
#include <cstddef>

#include "ps/shard/cursor_error.h"
#include "ps/shard/dense_file.h"
#include "tests/ps/fixture.h"
#include "util/crc32c.h"
#include "util/status.h"

namespace elasticctr::ps {
namespace {

// Two pservers saved at different moments, loaded by `shards` others: each batch reaches the rows that lack it, and the
// result equals that of an undisturbed job.
void TestOtherShardCounts(uint32_t shards) {
  Shard whole(MakeShardSettings());
  std::vector<std::unique_ptr<Shard>> before, after;
  SetDense(&whole);
  for (uint32_t s = 0; s < 2; ++s) {
    before.push_back(std::make_unique<Shard>(MakeShardSettings(s, 2)));
    SetDense(before.back().get());
  }
  const auto batch_at = [](uint32_t k) {
    Batch batch = Batch::Random(k);
    batch.from = k;
    batch.to = k + 1;
    return batch;
  };
  const std::string directory = MakeDirectory("moved");
  for (uint32_t k = 0; k < 30; ++k) {
    for (Shard* shard : {&whole, before[0].get(), before[1].get()}) {
      if (shard == before[1].get() && k >= 25) continue;  // saved five batches earlier
      Pull(shard, batch_at(k).feasigns, true);
      CHECK(Push(shard, batch_at(k))->outcome == PushOutcome::kApplied);
    }
  }
  for (const auto& shard : before) shard->Save(directory);
  for (uint32_t s = 0; s < shards; ++s) {
    after.push_back(std::make_unique<Shard>(MakeShardSettings(s, shards)));
    after.back()->Load(directory);
  }
  for (uint32_t k = 25; k < 40; ++k) {
    for (const auto& shard : after) {
      const uint32_t cursor = shard->Cursors(std::vector<uint64_t>{7})[0];
      CHECK(cursor == std::max(k, 25u) || cursor == 30);
      if (cursor > k) continue;
      Pull(shard.get(), batch_at(k).feasigns, true);
      CHECK(Push(shard.get(), batch_at(k))->outcome == PushOutcome::kApplied);
    }
    if (k < 30) continue;
    Pull(&whole, batch_at(k).feasigns, true);
    CHECK(Push(&whole, batch_at(k))->outcome == PushOutcome::kApplied);
  }
  // Adam's step count is the shard's largest: rows that caught up used a slightly later one.
  std::vector<uint64_t> all;
  for (uint64_t v = 0; v < 300; ++v) all.push_back(v * 0x9E3779B97F4A7C15ull);
  for (const uint64_t feasign : all) {
    for (const auto& shard : after) {
      const auto got = Pull(shard.get(), std::vector<uint64_t>{feasign}, false);
      if (got.empty()) continue;
      const auto expected = Pull(&whole, std::vector<uint64_t>{feasign}, false);
      for (size_t i = 0; i < got.size(); ++i) CHECK(std::fabs(got[i] - expected[i]) < 4e-3f);
      CHECK(got[kWide] == expected[kWide]);  // Adagrad has no step count: identical
    }
  }
  uint64_t rows = 0;
  for (const auto& shard : after) {
    CHECK(shard->Cursors(std::vector<uint64_t>{7})[0] == 40);
    rows += shard->GetStats().rows;
  }
  CHECK(rows == whole.GetStats().rows);
}

// Saved and loaded midway by the same number of shards: bit for bit the same as without.
void TestResumeIsExact() {
  for (const GroupMode mode : {GroupMode::kNone, GroupMode::kAll}) {
    Shard undisturbed(MakeShardSettings(0, 1, true));
    auto resumed = std::make_unique<Shard>(MakeShardSettings(0, 1, true));
    SetDense(&undisturbed);
    SetDense(resumed.get());
    for (uint32_t k = 0; k < 20; ++k) {
      if (k % 7 == 3) {
        const std::string directory = MakeDirectory("resume");
        resumed->Save(directory);
        resumed = std::make_unique<Shard>(MakeShardSettings(0, 1, true));
        resumed->Load(directory);
      }
      Batch batch = Batch::Random(k);
      batch.from = k;
      batch.to = k + 1;
      batch.group = mode;
      for (Shard* shard : {&undisturbed, resumed.get()}) {
        if (mode == GroupMode::kAll) shard->SetGroup({1});
        Pull(shard, batch.feasigns, true);
        CHECK(Push(shard, batch)->outcome == PushOutcome::kApplied);
      }
    }
    CHECK(SavedFiles(undisturbed, "one") == SavedFiles(*resumed, "two"));
  }
}

void TestDamagedParts() {
  Shard shard(MakeShardSettings());
  SetDense(&shard);
  for (uint32_t k = 0; k < 5; ++k) {
    Batch batch = Batch::Random(k);
    batch.from = k;
    batch.to = k + 1;
    Pull(&shard, batch.feasigns, true);
    Push(&shard, batch);
  }
  const auto files = SavedFiles(shard, "good");
  std::mt19937_64 rng(3);
  Shard loaded(MakeShardSettings());
  for (int round = 0; round < 300; ++round) {
    const std::string directory = MakeDirectory("damaged");
    auto victim = files.begin();
    std::advance(victim, rng() % files.size());
    const bool is_json = victim->first == "pserver.0.json";
    for (const auto& [name, bytes] : files) {
      std::string content = bytes;
      if (name == victim->first) {
        switch (rng() % (is_json ? 2 : 4)) {
          case 0: content.resize(rng() % content.size()); break;
          case 1: content.clear(); break;
          case 2: content += "more"; break;
          default: content[rng() % content.size()] ^= static_cast<char>(1u << rng() % 8); break;
        }
      }
      std::ofstream(directory + "/" + name, std::ios::binary) << content;
    }
    bool is_refused = false;
    try {
      loaded.Load(directory);
    } catch (const Error& error) {
      is_refused = error.code() == Code::kCorruption || error.code() == Code::kFailedPrecondition;
    }
    CHECK(is_refused && loaded.GetStats().rows == 0 && !loaded.GetStats().has_dense);
    CHECK(loaded.Cursors(std::vector<uint64_t>{7})[0] == 0);
  }
  for (const auto& [name, bytes] : files) {
    const std::string directory = MakeDirectory("damaged");
    for (const auto& [other, content] : files) {
      if (other != name) std::ofstream(directory + "/" + other, std::ios::binary) << content;
    }
    bool is_refused = false;
    try {
      loaded.Load(directory);
    } catch (const Error& error) {
      is_refused = error.code() == Code::kNotFound || error.code() == Code::kCorruption;
    }
    CHECK(is_refused);
  }
}

void WriteFile(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

// Loads and, on success, steps: loaded state must be safe to use. Returns the code of a refusal.
std::optional<Code> TryLoad(const std::string& directory, bool is_standby = false) {
  Shard shard(MakeShardSettings());
  try {
    if (is_standby) {
      shard.LoadFromPrimary(directory);
      shard.BecomePrimary();
      shard.SetGroup({1});
    } else {
      shard.Load(directory);
    }
  } catch (const Error& error) {
    return error.code();
  }
  Batch batch = Batch::Random(99);
  batch.from = shard.Cursors(std::vector<uint64_t>{batch.chunk})[0];
  batch.to = batch.from + 1;
  if (batch.to != 0) Push(&shard, batch);
  return std::nullopt;
}

std::map<std::string, std::string> FilesOfSomeBatches(const std::string& name) {
  Shard shard(MakeShardSettings());
  SetDense(&shard);
  for (uint32_t k = 0; k < 3; ++k) {
    Batch batch = Batch::Random(k);
    batch.from = k;
    batch.to = k + 1;
    Pull(&shard, batch.feasigns, true);
    Push(&shard, batch);
  }
  return SavedFiles(shard, name);
}

void WriteAll(const std::map<std::string, std::string>& files, const std::string& directory) {
  for (const auto& [name, content] : files) WriteFile(directory + "/" + name, content);
}

// PROMISE: a crafted dense.N.bin with correct checksums | Corruption; nothing is read beyond the state it has
void TestCraftedDense() {
  const auto files = FilesOfSomeBatches("crafted-dense");
  const std::string directory = MakeDirectory("crafted");
  WriteAll(files, directory);
  const std::string& good = files.at("dense.0.bin");
  const auto write = [&](DenseHeader header, std::string content) {
    header.payload_crc = Crc32c(0, content.data() + sizeof header, content.size() - sizeof header);
    header.crc = Crc32c(0, &header, offsetof(DenseHeader, crc));
    std::memcpy(content.data(), &header, sizeof header);
    WriteFile(directory + "/dense.0.bin", content);
  };
  DenseHeader header;
  std::memcpy(&header, good.data(), sizeof header);
  write(header, good);
  CHECK(!TryLoad(directory).has_value());
  for (uint32_t arrays = 0; arrays < 70; ++arrays) {
    if (arrays == header.state_arrays) continue;
    DenseHeader crafted = header;
    crafted.state_arrays = arrays;
    write(crafted, good.substr(0, sizeof header) + std::string((arrays + 1) * header.count * sizeof(float), '\1'));
    CHECK(TryLoad(directory) == Code::kCorruption);
  }
  std::mt19937_64 rng(5);
  for (int round = 0; round < 2000; ++round) {
    std::string content = good;
    for (uint64_t flips = 1 + rng() % 3; flips > 0; --flips) {
      content[8 + rng() % (sizeof header - 16)] ^= static_cast<char>(1u << rng() % 8);
    }
    DenseHeader crafted;
    std::memcpy(&crafted, content.data(), sizeof crafted);
    write(crafted, content);
    const auto code = TryLoad(directory);
    CHECK(!code || *code == Code::kCorruption || *code == Code::kFailedPrecondition);
  }
}

// PROMISE: a crafted pserver.N.json: ranges that end before they begin, overlap or lie beyond the vector | Corruption,
// or they are cut to what the shard has; no length underflows
void TestCraftedAhead() {
  const auto files = FilesOfSomeBatches("crafted-ahead");
  const std::string directory = MakeDirectory("crafted");
  WriteAll(files, directory);
  const auto load = [&](const std::string& ranges) {
    std::string json = files.at("pserver.0.json");
    const std::string none = "\"ahead\": []";
    CHECK(json.find(none) != std::string::npos);
    json.replace(json.find(none), none.size(), "\"ahead\": [" + ranges + "]");
    WriteFile(directory + "/pserver.0.json", json);
    return TryLoad(directory);
  };
  const auto range = [](uint64_t first, uint64_t last, uint64_t first_bucket = 0, uint64_t last_bucket = 0) {
    return "{\"chunk\": \"7\", \"cursor\": 9, \"first_bucket\": " + std::to_string(first_bucket) +
           ", \"last_bucket\": " + std::to_string(last_bucket) + ", \"first_float\": " + std::to_string(first) +
           ", \"last_float\": " + std::to_string(last) + "}";
  };
  CHECK(!load(range(0, 16)).has_value());
  CHECK(load(range(16, 0)) == Code::kCorruption);
  CHECK(load(range(0, 16, 9, 4)) == Code::kCorruption);
  CHECK(load(range(0, 16, 0, 5000)) == Code::kCorruption);
  CHECK(!load(range(0, 1000) + ", " + range(2000, 3000)).has_value());  // beyond the vector's 40 floats
  std::mt19937_64 rng(6);
  for (int round = 0; round < 1000; ++round) {
    std::string ranges;
    for (uint64_t left = 1 + rng() % 5; left > 0; --left) {
      const auto draw = [&] { return rng() % 7 == 0 ? rng() : rng() % 60; };
      ranges += range(draw(), draw(), rng() % 4200, rng() % 4200) + (left > 1 ? ", " : "");
    }
    const auto code = load(ranges);
    CHECK(!code || *code == Code::kCorruption);
  }
}

// PROMISE: a crafted waiting.bin: pushes of other shards' rows or with too many floats | Corruption; none of them waits
void TestCraftedWaiting() {
  Shard shard(MakeShardSettings());
  SetDense(&shard);
  shard.SetGroup({1, 2, 3});
  auto batches = GroupOf(0, GroupMode::kAll);
  for (const Batch& batch : batches) Pull(&shard, batch.feasigns, true);
  Push(&shard, batches[0]);
  Push(&shard, batches[1]);
  const std::string directory = MakeDirectory("crafted");
  shard.SaveForStandby(directory, [] {});
  CHECK(!TryLoad(directory, true).has_value());
  const std::string good = ReadAll(directory + "/waiting.bin");
  // A push with one dense float, where the pserver holds 40.
  std::string few = good;
  const size_t first = 8 + 3 * 8 + 8;  // after the group and taken_part: flags, length, body
  uint64_t bytes = 0;
  std::memcpy(&bytes, few.data() + first + 1, 8);
  bytes -= (kFloats - 1) * sizeof(float);
  std::memcpy(few.data() + first + 1, &bytes, 8);
  const uint32_t one = 1;
  std::memcpy(few.data() + first + 9 + 44, &one, 4);
  few.erase(first + 9 + bytes, (kFloats - 1) * sizeof(float));
  WriteFile(directory + "/waiting.bin", few);
  CHECK(TryLoad(directory, true) == Code::kCorruption);
  std::mt19937_64 rng(7);
  for (int round = 0; round < 3000; ++round) {
    std::string content = good;
    for (uint64_t flips = 1 + rng() % 3; flips > 0; --flips) {
      content[rng() % content.size()] ^= static_cast<char>(1u << rng() % 8);
    }
    if (rng() % 8 == 0) content.resize(rng() % content.size());
    WriteFile(directory + "/waiting.bin", content);
    const auto code = TryLoad(directory, true);
    CHECK(!code || *code == Code::kCorruption);
  }
  // The same file, read by the shard of other buckets.
  Shard half(MakeShardSettings(0, 2));
  const std::string other = MakeDirectory("crafted-other");
  half.SaveForStandby(other, [] {});
  WriteFile(other + "/waiting.bin", good);
  Shard standby(MakeShardSettings(0, 2));
  bool is_refused = false;
  try {
    standby.LoadFromPrimary(other);
  } catch (const Error& error) {
    is_refused = error.code() == Code::kCorruption;
  }
  CHECK(is_refused && standby.GetStats().waiting == 0);
}

}  // namespace
}  // namespace elasticctr::ps

int main() {
  using namespace elasticctr::ps;
  TestOtherShardCounts(1);
  TestOtherShardCounts(3);
  TestOtherShardCounts(2);
  TestResumeIsExact();
  TestDamagedParts();
  TestCraftedDense();
  TestCraftedAhead();
  TestCraftedWaiting();
  return 0;
}
