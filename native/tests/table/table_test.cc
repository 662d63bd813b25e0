// Whole tables: the number of threads changes nothing, growth keeps every row, readers run beside a writer (for the
// thread sanitizer), admission, eviction.

#include <thread>

#include "tests/check.h"
#include "tests/table/fixture.h"
#include "util/hash.h"
#include "util/status.h"
#include "util/thread_pool.h"

namespace elasticctr {
namespace {

void CheckThreadCountChangesNothing() {
  std::vector<float> weights[3];
  std::vector<uint64_t> feasigns[3];
  for (int i = 0; i < 3; ++i) {
    ThreadPool::SetDefaultThreads(i == 0 ? 1 : i == 1 ? 2 : 5);
    Table table(MakeSettings());
    Train(&table, 9, 0, 12);
    weights[i] = AllWeights(table, &feasigns[i]);
  }
  CHECK(feasigns[0] == feasigns[1] && feasigns[0] == feasigns[2]);
  CHECK(weights[0] == weights[1] && weights[0] == weights[2]);
  ThreadPool::SetDefaultThreads(2);
}

void CheckGrowth() {
  Table table(MakeSettings(OptimizerKind::kSgd, 2));
  const std::vector<uint32_t> slots{0};
  constexpr uint64_t kBatch = 50000;
  for (uint64_t first = 0; first < 4 * kBatch; first += kBatch) {
    std::vector<uint64_t> values;
    for (uint64_t i = 0; i < kBatch; ++i) values.push_back(first + i);
    const std::vector<int32_t> offsets{0, static_cast<int32_t>(kBatch)};
    Lookup lookup(values, offsets, 1, slots);
    table.Find(&lookup, true);
    table.Find(&lookup, false);
    for (uint64_t i = 0; i < kBatch; ++i) CHECK(lookup.rows()[i] != 0);
  }
  const TableStats stats = table.GetStats();
  CHECK(stats.rows == 4 * kBatch);
  CHECK(stats.index_bytes < 6 * stats.rows + 64 * Table::kShards);
  std::vector<uint64_t> all;
  AllWeights(table, &all);
  CHECK(all.size() == stats.rows);
}

// One thread trains while two read; each reader must see rows, zeros or a refusal, without a race.
void CheckReadersBesideWriter() {
  Table table(MakeSettings());
  Train(&table, 9, 0, 1);
  std::thread writer([&] {
    Train(&table, 9, 1, 6);
    table.Evict({1.0f, 1.0f, 2.0f, 0});
    Train(&table, 9, 7, 4);
  });
  std::vector<std::thread> readers;
  for (uint64_t r = 0; r < 2; ++r) {
    readers.emplace_back([&table, r] {
      const Layout layout = MakeLayout(4, 9);
      for (uint64_t i = 0; i < 20; ++i) {
        const RandomBatch batch(100 * r + i, 50, 4, 2, 5000);
        Lookup lookup = batch.MakeLookup();
        std::vector<float> flat(50 * 40);
        try {
          table.Find(&lookup, false);
          table.Pull(lookup, layout, {MakeTarget(&flat, 50)});
        } catch (const Error& e) {
          CHECK(e.code() == Code::kFailedPrecondition);
        }
        std::vector<float> weights(batch.values.size() * 10);
        table.Get(batch.values, weights.data(), nullptr, nullptr);
      }
    });
  }
  writer.join();
  for (auto& reader : readers) reader.join();
}

void CheckAdmission() {
  TableSettings settings = MakeSettings();
  settings.admission.count = 3;
  Table table(settings);
  const std::vector<uint64_t> values{7, 7, 8};
  const std::vector<int32_t> offsets{0, 3};
  const std::vector<uint32_t> slots{0};
  Lookup lookup(values, offsets, 1, slots);
  table.Find(&lookup, true);
  CHECK(lookup.rows()[0] == 0 && lookup.rows()[1] == 0);
  CHECK(table.GetStats().pending == 2);
  table.Find(&lookup, true);
  CHECK(lookup.rows()[0] != 0 && lookup.rows()[1] == 0);
  CHECK(table.GetStats().pending == 1 && table.GetStats().rows == 1);
}

// Pending counts compared with a plain map, with removals in every order.
void CheckPending() {
  Pending pending;
  std::vector<uint32_t> reference(500, 0);
  std::mt19937_64 rng(3);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t feasign = rng() % reference.size();
    const uint32_t occurrences = 1 + rng() % 3;
    const uint32_t expected = std::min(reference[feasign] + occurrences, 10u);
    CHECK(pending.Count(feasign, occurrences, 10) == expected);
    reference[feasign] = expected == 10 ? 0 : expected;
  }
  size_t live = 0;
  for (const uint32_t count : reference) live += count != 0;
  CHECK(pending.size() == live);
  pending.ForEach([&](uint64_t feasign, uint16_t count) { CHECK(reference[feasign] == count); });
}

void CheckEvictionFreesAndReuses() {
  Table table(MakeSettings());
  Train(&table, 9, 0, 8);
  std::vector<uint64_t> before, after, again;
  AllWeights(table, &before);
  const uint64_t dropped = table.Evict({1.0f, 1.0f, 3.0f, 0});
  CHECK(dropped > 0 && dropped < before.size());
  AllWeights(table, &after);
  CHECK(after.size() == before.size() - dropped);
  CHECK(table.Erase(std::vector<uint64_t>{after[0], after[1], 987654321987}) == 2);
  Train(&table, 9, 0, 8);
  AllWeights(table, &again);
  CHECK(again.size() >= before.size());
}

// The same history gives the same marks by content, another one gives others; random ones never repeat.
void CheckMarksByContent() {
  Table a(MakeSettings()), b(MakeSettings()), other(MakeSettings());
  for (Table* table : {&a, &b}) Train(table, 9, 0, 1);
  Train(&other, 9, 5, 1);
  const Mark first = a.SetMark(true);
  CHECK(b.SetMark(true).id == first.id && b.Knows(first));
  CHECK(other.SetMark(true).id != first.id && !other.Knows(first));
  for (Table* table : {&a, &b}) Train(table, 9, 1, 1);
  const Mark second = a.SetMark(true);
  CHECK(second.id != first.id && b.SetMark(true).id == second.id);
  CHECK(a.SetMark().id != b.SetMark().id);
}

// One thread trains, marks and evicts while another reads the changes.
void CheckMarksBesideReaders() {
  Table table(MakeSettings());
  Train(&table, 9, 0, 1);
  const Mark first = table.SetMark();
  std::thread reader([&] {
    for (int i = 0; i < 20; ++i) {
      std::vector<uint64_t> feasigns;
      std::vector<float> weights;
      std::vector<Counters> counters;
      table.Export(0, kBuckets, 1000, 0, &feasigns, &weights, &counters, &first);
      CHECK(feasigns.size() <= 1000 && table.Gone(first).size() <= 100000);
    }
  });
  for (uint64_t step = 1; step < 6; ++step) {
    Train(&table, 9, step, 1);
    table.Evict({1.0f, 1.0f, 2.0f, 0});
    table.SetMark();
  }
  reader.join();
  CHECK(table.Knows(first));
}

}  // namespace
}  // namespace elasticctr

int main() {
  using namespace elasticctr;
  CheckThreadCountChangesNothing();
  CheckMarksByContent();
  CheckGrowth();
  CheckReadersBesideWriter();
  CheckMarksBesideReaders();
  CheckAdmission();
  CheckPending();
  CheckEvictionFreesAndReuses();
}
