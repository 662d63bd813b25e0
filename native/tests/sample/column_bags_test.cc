// Columns cut and hashed, compared with the simplest loops, and columns with arbitrary offsets.
#include "sample/column_bags.h"

#include <random>
#include <string>
#include <vector>

#include "tests/check.h"
#include "util/hash.h"
#include "util/status.h"

namespace elasticctr {
namespace {

struct Column {
  std::vector<uint64_t> values;
  std::vector<int32_t> offsets;
};

std::vector<Column> MakeColumns(std::mt19937_64& rng, size_t slots, size_t n) {
  std::vector<Column> columns(slots);
  for (Column& column : columns) {
    column.offsets.push_back(static_cast<int32_t>(rng() % 3));
    for (size_t i = 0; i < n; ++i) column.offsets.push_back(column.offsets.back() + static_cast<int32_t>(rng() % 4));
    column.values.resize(column.offsets.back());
    for (uint64_t& value : column.values) value = rng();
  }
  return columns;
}

std::vector<BagColumn> View(const std::vector<Column>& columns) {
  std::vector<BagColumn> views;
  for (const Column& column : columns) views.push_back({column.values, column.offsets});
  return views;
}

void TestSlice() {
  std::mt19937_64 rng(1);
  for (int round = 0; round < 200; ++round) {
    const size_t slots = rng() % 5, n = rng() % 40;
    const auto columns = MakeColumns(rng, slots, n);
    const size_t start = rng() % (n + 1), stop = start + rng() % (n - start + 1);
    const Bags bags = SliceColumns(View(columns), start, stop);
    CHECK(bags.offset_count == slots * (stop - start) + 1);
    CHECK(bags.offsets[0] == 0);
    size_t at = 0, bag = 0;
    for (const Column& column : columns) {
      for (size_t i = start; i < stop; ++i) {
        for (int32_t j = column.offsets[i]; j < column.offsets[i + 1]; ++j)
          CHECK(bags.values[at++] == column.values[j]);
        CHECK(bags.offsets[++bag] == static_cast<int32_t>(at));
      }
    }
    CHECK(at == bags.value_count);
  }
}

// For any offsets, either an answer or a typed error; the sanitizers detect anything else.
void TestSliceOfContradictions() {
  std::mt19937_64 rng(2);
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    const size_t n = 1 + rng() % 20;
    auto columns = MakeColumns(rng, 1 + rng() % 3, n);
    auto& offsets = columns[rng() % columns.size()].offsets;
    offsets[rng() % offsets.size()] = static_cast<int32_t>(rng());
    try {
      SliceColumns(View(columns), rng() % n, n + rng() % 2);
    } catch (const Error& e) {
      CHECK(e.code() == Code::kCorruption || e.code() == Code::kFailedPrecondition);
      ++refused;
    }
  }
  CHECK(refused > 1000);
}

void TestHashStrings() {
  const std::string data = "abcdef";
  const std::vector<int32_t> offsets = {0, 3, 3, 6};
  uint64_t out[3];
  HashStrings(offsets, data, 42, out);
  CHECK(out[0] == Xxh64("abc", 3, 42));
  CHECK(out[1] == Xxh64("", 0, 42));
  CHECK(out[2] == Xxh64("def", 3, 42));
  for (const std::vector<int32_t>& wrong :
       {std::vector<int32_t>{0, 7}, std::vector<int32_t>{3, 2}, std::vector<int32_t>{-1, 2}}) {
    bool is_refused = false;
    try {
      HashStrings(wrong, data, 42, out);
    } catch (const Error& e) {
      is_refused = e.code() == Code::kCorruption;
    }
    CHECK(is_refused);
  }
}

void TestHashLines() {
  CHECK(HashLines("", 1).empty());
  const auto hashes = HashLines("a\r\n\nbc", 1);
  CHECK(hashes.size() == 3);
  CHECK(hashes[0] == Xxh64("a", 1, 1));
  CHECK(hashes[1] == Xxh64("", 0, 1));
  CHECK(hashes[2] == Xxh64("bc", 2, 1));
}

void TestHashRows() {
  // Two samples with the same values in different slots, and a third equal to the first.
  const std::vector<float> labels = {1, 1, 1}, weights = {1, 1, 1};
  const std::vector<uint64_t> values = {7, 7, 7};
  const std::vector<int32_t> offsets = {0, 1, 1, 2, 2, 3, 3};
  uint64_t out[3];
  HashRows({labels, {}, weights, {values, offsets, 3}}, 5, out);
  CHECK(out[0] == out[2]);
  CHECK(out[0] != out[1]);
}

}  // namespace
}  // namespace elasticctr

int main() {
  elasticctr::TestSlice();
  elasticctr::TestSliceOfContradictions();
  elasticctr::TestHashStrings();
  elasticctr::TestHashLines();
  elasticctr::TestHashRows();
}
