// Rows by feasign (PullRows, InsertRows, PushRows, AddRows) compared with the lookups of a training step, and tables
// assembled from parts of files.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "table/remote.h"
#include "tests/check.h"
#include "tests/table/fixture.h"
#include "util/hash.h"
#include "util/status.h"

namespace elasticctr {
namespace {

constexpr uint32_t kDim = 9, kSlots = 4;
constexpr size_t kSamples = 300;

std::string Scratch(const std::string& name) {
  static const std::filesystem::path directory = [] {
    auto path = std::filesystem::temp_directory_path() / ("table_rows_test-" + std::to_string(::getpid()));
    std::filesystem::create_directories(path);
    std::atexit([] {
      std::filesystem::remove_all(std::filesystem::temp_directory_path() /
                                  ("table_rows_test-" + std::to_string(::getpid())));
    });
    return path;
  }();
  return (directory / name).string();
}

std::string BytesOf(const Table& table) {
  const std::string path = Scratch("bytes.table");
  table.Save(path, "");
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

RowGradients Gradients(const Lookup& lookup, const SummedGradients& summed, size_t width) {
  RowGradients push;
  push.feasigns = {lookup.feasigns(), lookup.distinct()};
  push.shows = summed.shows.data();
  push.clicks = summed.clicks.data();
  push.masks = summed.has_masks ? summed.masks.data() : nullptr;
  push.fill = [&summed, width](size_t first, size_t count, float* out) {
    std::memcpy(out, summed.gradients.data() + first * width, count * width * sizeof(float));
  };
  return push;
}

// A step by feasign equals a step by lookup: the tables stay identical, byte for byte.
void TestStepsEqualLookups(TableSettings settings, bool is_complete) {
  settings.segments[1].optimizer.l2 = 0.001f;
  settings.segments[1].optimizer.gradient_clip = 0.05f;
  settings.segments[1].optimizer.weight_bound = 0.5f;
  Table local(settings), remote(settings);
  Layout layout = MakeLayout(kSlots, kDim);
  if (!is_complete) {
    auto slots = layout.slots();
    slots[1].columns[1] = -1;
    layout = Layout(slots, {1, kDim});
  }
  const size_t width = kDim + 1;
  for (uint64_t step = 0; step < 12; ++step) {
    const RandomBatch batch(step, kSamples, kSlots, 3, 4000);
    Lookup lookup = batch.MakeLookup();
    local.Find(&lookup, true);
    std::vector<uint32_t> missing, occurrences;
    std::vector<uint64_t> strangers;
    std::vector<float> rows(lookup.distinct() * width);
    const std::span<const uint64_t> feasigns(lookup.feasigns(), lookup.distinct());
    std::vector<uint32_t> numbers(feasigns.size());
    const uint64_t generation = remote.PullRows(feasigns, rows.data(), &missing, numbers.data());
    for (const uint32_t i : missing) {
      CHECK(rows[i * width + 3] == 0.0f);
      strangers.push_back(feasigns[i]);
      occurrences.push_back(lookup.starts()[i + 1] - lookup.starts()[i]);
    }
    std::vector<float> fresh(strangers.size() * width);
    remote.InsertRows(strangers, occurrences.data(), fresh.data());
    for (size_t k = 0; k < missing.size(); ++k) {
      std::memcpy(&rows[missing[k] * width], &fresh[k * width], width * sizeof(float));
    }
    std::vector<float> expected(rows.size());
    local.Get(feasigns, expected.data(), nullptr, nullptr);
    CHECK(rows == expected);

    std::vector<float> flat(kSamples * kSlots * width);
    for (size_t i = 0; i < flat.size(); ++i) flat[i] = 0.01f * static_cast<float>((i + step) % 13) - 0.06f;
    std::vector<float> clicks(kSamples);
    for (size_t i = 0; i < kSamples; ++i) clicks[i] = static_cast<float>(i % 3 == 0);
    PushSamples samples;
    samples.clicks = clicks.data();
    samples.now = static_cast<uint32_t>(step);
    samples.rate_scale = 0.7f;
    samples.gradient_scale = 0.5f;
    SummedGradients summed;
    SumGradients(lookup, layout, width, {MakeTarget(&flat, kSamples)}, samples, &summed);
    local.Push(lookup, layout, {MakeTarget(&flat, kSamples)}, samples);
    RowGradients push = Gradients(lookup, summed, width);
    push.now = samples.now;
    push.rate_scale = 0.7f;
    // With correct row numbers, wrong ones and none: all the same.
    if (step % 3 == 1) std::rotate(numbers.begin(), numbers.begin() + 1, numbers.end());
    push.rows = step % 3 == 2 ? nullptr : numbers.data();
    push.generation = generation;
    remote.PushRows(push);
  }
  CHECK(local.GetStats().rows > 1000 || settings.admission.count > 1);
  CHECK(BytesOf(local) == BytesOf(remote));
}

// Row numbers from before rows were dropped are void: pushes with them have the same effect as pushes without.
void TestRowsOfThePast() {
  const size_t width = kDim + 1;
  std::vector<uint64_t> feasigns;
  for (uint64_t i = 0; i < 200; ++i) feasigns.push_back(i * 0x9E3779B97F4A7C15ull);
  const std::span<const uint64_t> kept(feasigns.data() + 150, 50);
  Table told(MakeSettings()), untold(MakeSettings());
  std::vector<float> rows(feasigns.size() * width);
  std::vector<uint32_t> numbers(feasigns.size()), missing;
  RowGradients push;
  push.feasigns = feasigns;
  push.now = 3;
  push.fill = [width](size_t, size_t count, float* out) { std::fill_n(out, count * width, 0.25f); };
  for (Table* table : {&told, &untold}) {
    table->InsertRows(feasigns, nullptr, nullptr);
    push.generation = table->PullRows(feasigns, rows.data(), &missing, numbers.data());
    CHECK(table->Erase({feasigns.data(), 150}) == 150);
    push.rows = table == &told ? numbers.data() : nullptr;
    table->PushRows(push);
  }
  CHECK(missing.empty() && told.GetStats().rows == kept.size() && BytesOf(told) == BytesOf(untold));
  std::vector<float> after(kept.size() * width);
  told.PullRows(kept, after.data(), &missing);
  CHECK(missing.empty() && std::memcmp(after.data(), &rows[150 * width], after.size() * sizeof(float)) != 0);
}

void TestDeltas() {
  Table table(MakeSettings());
  const std::vector<uint64_t> feasigns = {5, 7, 1ull << 63, 11};
  const size_t width = kDim + 1;
  std::vector<float> before(3 * width), after(4 * width);
  table.InsertRows({feasigns.data(), 3}, nullptr, before.data());
  const std::vector<float> shows = {2, 3, 4, 5}, clicks = {1, 0, 1, 0};
  RowGradients deltas;
  deltas.feasigns = feasigns;
  deltas.shows = shows.data();
  deltas.clicks = clicks.data();
  deltas.now = 9;
  deltas.fill = [&](size_t first, size_t count, float* out) {
    for (size_t i = 0; i < count * width; ++i) out[i] = static_cast<float>(first * width + i) * 0.125f;
  };
  table.AddRows(deltas);
  bool found[4];
  Counters counters[4];
  table.Get(feasigns, after.data(), found, counters);
  CHECK(found[2] && !found[3] && table.GetStats().rows == 3 && table.GetStats().steps == 0);
  for (size_t i = 0; i < 3 * width; ++i) CHECK(after[i] == before[i] + static_cast<float>(i) * 0.125f);
  CHECK(counters[1].show == 3 && counters[2].click == 1 && counters[0].last_seen == 9);
}

// Rows admitted at their third occurrence; an occurrence of 0, which no trainer sends, counts as one.
void TestAdmission() {
  TableSettings settings = MakeSettings();
  settings.admission.count = 3;
  Table table(settings);
  const std::vector<uint64_t> feasigns = {1, 2, 3};
  const std::vector<uint32_t> occurrences = {1, 3, 0};
  std::vector<float> rows(3 * (kDim + 1));
  table.InsertRows(feasigns, occurrences.data(), rows.data());
  CHECK(table.GetStats().rows == 1 && table.GetStats().pending == 2);
  CHECK(rows[3] == 0.0f && rows[kDim + 1 + 3] != 0.0f);
  table.InsertRows(feasigns, occurrences.data(), nullptr);
  table.InsertRows(feasigns, occurrences.data(), nullptr);
  CHECK(table.GetStats().rows == 3 && table.GetStats().pending == 0);
}

void TestParts() {
  TableSettings settings = MakeSettings();
  settings.admission.count = 2;
  Table whole(settings);
  Train(&whole, kDim, 0, 10);
  whole.Save(Scratch("whole.table"), "");
  // From one file into three tables, their files into two, and those into one again.
  std::vector<std::string> paths;
  const auto cut = [&](const std::vector<std::string>& from, uint32_t first, uint32_t last, const std::string& name) {
    Table part(settings);
    for (const auto& path : from) part.LoadPart(path, first, last);
    CHECK(part.GetStats().steps == whole.GetStats().steps);
    part.Save(Scratch(name), "");
    return Scratch(name);
  };
  const std::vector<std::string> three = {cut({Scratch("whole.table")}, 0, 1000, "a.table"),
                                          cut({Scratch("whole.table")}, 1000, 1001, "b.table"),
                                          cut({Scratch("whole.table")}, 1001, 4096, "c.table")};
  const std::vector<std::string> two = {cut(three, 0, 2048, "d.table"), cut(three, 2048, 4096, "e.table")};
  Table joined(settings);
  for (const auto& path : two) joined.LoadPart(path, 0, 4096);
  CHECK(joined.GetStats().rows == whole.GetStats().rows && joined.GetStats().pending == whole.GetStats().pending);
  std::vector<uint64_t> feasigns;
  const std::vector<float> weights = AllWeights(whole, &feasigns);
  std::vector<float> other(weights.size());
  joined.Get(feasigns, other.data(), nullptr, nullptr);
  CHECK(weights == other);
  // Loaded, then trained further: still the same.
  Train(&whole, kDim, 10, 3);
  Train(&joined, kDim, 10, 3);
  feasigns.clear();
  const std::vector<float> stepped = AllWeights(whole, &feasigns);
  other.resize(stepped.size());
  joined.Get(feasigns, other.data(), nullptr, nullptr);
  CHECK(stepped == other && joined.GetStats().rows == whole.GetStats().rows);
}

void TestBadParts() {
  Table whole(MakeSettings());
  Train(&whole, kDim, 0, 3);
  whole.Save(Scratch("whole.table"), "");
  Table table(MakeSettings());
  table.LoadPart(Scratch("whole.table"), 0, 2000);
  const auto code_of = [&](const std::string& path) {
    try {
      table.LoadPart(path, 0, 4096);
    } catch (const Error& e) {
      return e.code();
    }
    return Code::kInternal;
  };
  CHECK(code_of(Scratch("whole.table")) == Code::kCorruption);  // the same feasigns a second time
  CHECK(table.GetStats().rows == 0);
  CHECK(code_of(Scratch("none.table")) == Code::kNotFound);
  std::string bytes = BytesOf(whole);
  for (size_t k = 0; k < 40; ++k) {
    std::string damaged = bytes;
    damaged[(k * 7919 + 64) % bytes.size()] ^= 0x10;
    std::ofstream(Scratch("damaged.table"), std::ios::binary) << damaged;
    const Code code = code_of(Scratch("damaged.table"));
    CHECK(code == Code::kCorruption || code == Code::kFailedPrecondition);
    CHECK(table.GetStats().rows == 0);
  }
}

}  // namespace
}  // namespace elasticctr

int main() {
  using namespace elasticctr;
  for (const auto kind : {OptimizerKind::kAdam, OptimizerKind::kAdagrad, OptimizerKind::kSgd}) {
    TestStepsEqualLookups(MakeSettings(kind), true);
    TestStepsEqualLookups(MakeSettings(kind, kDim, false), false);
  }
  TableSettings rare = MakeSettings();
  rare.admission.count = 3;
  TestStepsEqualLookups(rare, true);
  TableSettings caught_up = MakeSettings();
  caught_up.segments[1].optimizer.catch_up = 100;
  TestStepsEqualLookups(caught_up, true);
  TestStepsEqualLookups(caught_up, false);
  TestRowsOfThePast();
  TestDeltas();
  TestAdmission();
  TestParts();
  TestBadParts();
  return 0;
}
