#include "sample/column_bags.h"

#include <algorithm>
#include <string>

#include "util/hash.h"
#include "util/status.h"

namespace elasticctr {

void HashStrings(std::span<const int32_t> offsets, std::string_view data, uint64_t slot_seed, uint64_t* out) {
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    const int64_t begin = offsets[i], end = offsets[i + 1];
    if (begin < 0 || begin > end || static_cast<size_t>(end) > data.size()) {
      throw Error(Code::kCorruption, "offsets of a column of strings contradict its bytes");
    }
    out[i] = FeatureHash(data.substr(begin, end - begin), slot_seed);
  }
}

std::vector<uint64_t> HashLines(std::string_view text, uint64_t seed) {
  std::vector<uint64_t> hashes;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const size_t size = end > 0 && text[end - 1] == '\r' ? end - 1 : end;
    hashes.push_back(Xxh64(text.data(), size, seed));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return hashes;
}

void HashRows(const RowsView& rows, uint64_t seed, uint64_t* out) {
  const size_t n = rows.bags.n;
  if (n == 0) return;
  const size_t label_count = rows.labels.size() / n, dense_dim = rows.dense.size() / n;
  const size_t slots = (rows.bags.offsets.size() - 1) / n;
  for (size_t i = 0; i < n; ++i) {
    uint64_t hash = Xxh64(rows.labels.data() + i * label_count, label_count * sizeof(float), seed);
    hash = Xxh64(rows.dense.data() + i * dense_dim, dense_dim * sizeof(float), hash);
    hash = Xxh64(rows.weights.data() + i, sizeof(float), hash);
    for (size_t s = 0; s < slots; ++s) {
      const int64_t begin = rows.bags.offsets[s * n + i], end = rows.bags.offsets[s * n + i + 1];
      if (begin < 0 || begin > end || static_cast<size_t>(end) > rows.bags.values.size()) {
        throw Error(Code::kCorruption, "offsets of a batch contradict its values");
      }
      hash = Xxh64(rows.bags.values.data() + begin, (end - begin) * sizeof(uint64_t), hash);
    }
    out[i] = hash;
  }
}

Bags SliceColumns(const std::vector<BagColumn>& columns, size_t start, size_t stop) {
  const size_t n = stop - start;
  size_t total = 0;
  for (const BagColumn& column : columns) {
    if (start > stop || stop >= column.offsets.size()) {
      throw Error(Code::kFailedPrecondition, "samples " + std::to_string(start) + " to " + std::to_string(stop) +
                                                 " of a column of " + std::to_string(column.offsets.size()) +
                                                 " offsets were asked for");
    }
    const int64_t begin = column.offsets[start], end = column.offsets[stop];
    if (begin < 0 || begin > end || static_cast<size_t>(end) > column.values.size()) {
      throw Error(Code::kCorruption, "offsets of a column contradict its values");
    }
    total += static_cast<size_t>(end - begin);
  }
  if (total > INT32_MAX || columns.size() * n >= INT32_MAX) {
    throw Error(Code::kFailedPrecondition, "a batch holds over 2^31 values; make smaller batches");
  }
  Bags out;
  out.value_count = total;
  out.offset_count = columns.size() * n + 1;
  out.values.reset(new uint64_t[std::max<size_t>(total, 1)]);
  out.offsets.reset(new int32_t[out.offset_count]);
  out.offsets[0] = 0;
  int32_t at = 0;
  int32_t* out_offsets = out.offsets.get() + 1;
  for (const BagColumn& column : columns) {
    const int32_t* offsets = column.offsets.data() + start;
    std::copy(column.values.data() + offsets[0], column.values.data() + offsets[n], out.values.get() + at);
    const int32_t shift = at - offsets[0];
    bool is_sorted = true;
    for (size_t i = 1; i <= n; ++i) {
      is_sorted &= offsets[i - 1] <= offsets[i];
      out_offsets[i - 1] = offsets[i] + shift;
    }
    if (!is_sorted) throw Error(Code::kCorruption, "offsets of a column go backwards");
    out_offsets += n;
    at += offsets[n] - offsets[0];
  }
  return out;
}

}  // namespace elasticctr
