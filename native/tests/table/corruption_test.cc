// A saved table, damaged in every way: each byte flipped, cut at every length. Loading must throw Corruption (or refuse
// the layout or version) and leave a usable table; it must never accept damage.

#include <unistd.h>

#include <cstdio>
#include <string>

#include "tests/check.h"
#include "tests/table/fixture.h"
#include "util/status.h"
#include "util/thread_pool.h"

namespace elasticctr {
namespace {

std::string ReadFile(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  CHECK(file != nullptr);
  std::string bytes;
  for (int c; (c = std::fgetc(file)) != EOF;) bytes += static_cast<char>(c);
  std::fclose(file);
  return bytes;
}

void WriteFile(const std::string& path, const std::string& bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  CHECK(file != nullptr && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size());
  std::fclose(file);
}

bool IsRefused(Table* table, const std::string& path) {
  try {
    table->Load(path);
  } catch (const Error& e) {
    CHECK(e.code() == Code::kCorruption || e.code() == Code::kFailedPrecondition);
    CHECK(std::string(e.what()).find(path) != std::string::npos);
    return true;
  }
  return false;
}

// `is_marked`: the file includes the data of marks.
void CheckDamage(const std::string& path, bool is_marked) {
  TableSettings settings = MakeSettings(OptimizerKind::kAdagrad, 2);
  settings.admission.count = 2;
  Table table(settings);
  Train(&table, 2, 0, 1, 60);
  if (is_marked) {
    table.SetMark();
    Train(&table, 2, 1, 1, 60);
    CHECK(table.Evict({1.0f, 1.0f, 30.0f, 0}) > 0);
    table.SetMark();
    Train(&table, 2, 2, 1, 20);
  }
  table.Save(path, "{}");
  const std::string good = ReadFile(path);

  Table other(settings);
  other.Load(path);
  other.Save(path, "{}");
  CHECK(ReadFile(path) == good);
  std::mt19937_64 rng(1);
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
    WriteFile(path, bad);
    CHECK(IsRefused(&other, path));
  }
  for (size_t length = 0; length < good.size(); length += 1 + rng() % 7) {
    WriteFile(path, good.substr(0, length));
    CHECK(IsRefused(&other, path));
  }
  WriteFile(path, good + "x");
  CHECK(IsRefused(&other, path));
  // Swapped or repeated blocks pass their own checksums; the footer and the order of shards detect them.
  for (int round = 0; round < 300; ++round) {
    std::string bad = good;
    const size_t from = rng() % bad.size(), to = rng() % bad.size(), size = rng() % 200;
    bad.replace(to, size, good.substr(from, size));
    if (bad == good) continue;
    WriteFile(path, bad);
    CHECK(IsRefused(&other, path));
  }
  Train(&other, 2, 0, 2, 60);  // still usable
  WriteFile(path, good);
  other.Load(path);
  CHECK(other.GetStats().rows == table.GetStats().rows && other.GetStats().pending == table.GetStats().pending);
  std::remove(path.c_str());
}

}  // namespace
}  // namespace elasticctr

int main() {
  using namespace elasticctr;
  ThreadPool::SetDefaultThreads(1);
  const std::string path = "/tmp/elasticctr_table_corruption_" + std::to_string(getpid());
  CheckDamage(path, false);
  CheckDamage(path, true);
}
