#include "sample/bags.h"

#include <algorithm>
#include <string>

#include "util/status.h"

namespace elasticctr {
namespace {

// Returns the number of slots. Checks the shape, and that the slots' values are contiguous and in order.
size_t CheckShape(const BagsView& bags) {
  const size_t count = bags.offsets.size();
  if (count == 0 || (bags.n == 0 ? count != 1 : (count - 1) % bags.n != 0)) {
    throw Error(Code::kCorruption,
                std::to_string(count) + " offsets do not fit " + std::to_string(bags.n) + " samples");
  }
  const size_t slots = bags.n == 0 ? 0 : (count - 1) / bags.n;
  int32_t last = 0;
  for (size_t s = 0; s <= slots; ++s) {
    if (bags.offsets[s * bags.n] < last) throw Error(Code::kCorruption, "offsets of a batch go backwards");
    last = bags.offsets[s * bags.n];
  }
  if (static_cast<size_t>(last) > bags.values.size()) {
    throw Error(Code::kCorruption, "offsets of a batch point past its values");
  }
  return slots;
}

Bags Allocate(size_t slots, size_t n, size_t value_count) {
  if (value_count > INT32_MAX || slots * n >= INT32_MAX) {
    throw Error(Code::kFailedPrecondition, "a batch holds over 2^31 values; make smaller batches");
  }
  Bags out;
  out.value_count = value_count;
  out.offset_count = slots * n + 1;
  out.values.reset(new uint64_t[std::max<size_t>(value_count, 1)]);
  out.offsets.reset(new int32_t[out.offset_count]);
  out.offsets[0] = 0;
  return out;
}

}  // namespace

Bags TakeBags(const BagsView& bags, std::span<const int64_t> rows) {
  const size_t slots = CheckShape(bags);
  for (const int64_t row : rows) {
    if (row < 0 || static_cast<size_t>(row) >= bags.n) {
      throw Error(Code::kFailedPrecondition,
                  "sample " + std::to_string(row) + " of a batch of " + std::to_string(bags.n) + " was asked for");
    }
  }
  size_t total = 0;
  for (size_t s = 0; s < slots; ++s) {
    const int32_t* offsets = bags.offsets.data() + s * bags.n;
    for (const int64_t row : rows) {
      const int64_t size = int64_t{offsets[row + 1]} - offsets[row];
      if (size < 0 || offsets[row] < 0 || static_cast<size_t>(offsets[row + 1]) > bags.values.size()) {
        throw Error(Code::kCorruption, "offsets of a batch go backwards");
      }
      total += static_cast<size_t>(size);
    }
  }
  Bags out = Allocate(slots, rows.size(), total);
  int32_t* out_offset = out.offsets.get();
  uint64_t* value = out.values.get();
  for (size_t s = 0; s < slots; ++s) {
    const int32_t* offsets = bags.offsets.data() + s * bags.n;
    for (const int64_t row : rows) {
      const int32_t begin = offsets[row];
      const int32_t size = offsets[row + 1] - begin;
      if (size == 1) [[likely]] {
        *value = bags.values[begin];
      } else {
        std::copy_n(bags.values.data() + begin, size, value);
      }
      value += size;
      *++out_offset = static_cast<int32_t>(value - out.values.get());
    }
  }
  return out;
}

Bags SliceBags(const BagsView& bags, size_t start, size_t stop) {
  const size_t slots = CheckShape(bags);
  stop = std::min(stop, bags.n);
  start = std::min(start, stop);
  const size_t n = stop - start;
  size_t total = 0;
  for (size_t s = 0; s < slots; ++s) {
    const int32_t begin = bags.offsets[s * bags.n + start], end = bags.offsets[s * bags.n + stop];
    if (begin < 0 || begin > end || static_cast<size_t>(end) > bags.values.size()) {
      throw Error(Code::kCorruption, "offsets of a batch go backwards");
    }
    total += static_cast<size_t>(end - begin);
  }
  Bags out = Allocate(slots, n, total);
  int32_t at = 0;
  for (size_t s = 0; s < slots; ++s) {
    const int32_t* offsets = bags.offsets.data() + s * bags.n + start;
    std::copy(bags.values.data() + offsets[0], bags.values.data() + offsets[n], out.values.get() + at);
    int32_t* out_offsets = out.offsets.get() + s * n;
    const int32_t shift = at - offsets[0];
    for (size_t i = 1; i <= n; ++i) out_offsets[i] = offsets[i] + shift;
    at = out_offsets[n];
  }
  return out;
}

Bags ConcatBags(const std::vector<BagsView>& parts) {
  size_t slots = 0, n = 0, total = 0;
  for (const BagsView& part : parts) {
    const size_t part_slots = CheckShape(part);
    if (part.n == 0) continue;
    if (n > 0 && part_slots != slots)
      throw Error(Code::kFailedPrecondition, "batches of different schemas cannot be joined");
    slots = part_slots;
    n += part.n;
    total += static_cast<size_t>(part.offsets.back() - part.offsets.front());
  }
  Bags out = Allocate(slots, n, total);
  int32_t at = 0;
  int32_t* out_offsets = out.offsets.get() + 1;
  for (size_t s = 0; s < slots; ++s) {
    for (const BagsView& part : parts) {
      if (part.n == 0) continue;
      const int32_t* offsets = part.offsets.data() + s * part.n;
      std::copy(part.values.data() + offsets[0], part.values.data() + offsets[part.n], out.values.get() + at);
      const int32_t shift = at - offsets[0];
      bool is_sorted = true;
      for (size_t i = 1; i <= part.n; ++i) {
        is_sorted &= offsets[i - 1] <= offsets[i];
        *out_offsets++ = offsets[i] + shift;
      }
      if (!is_sorted) throw Error(Code::kCorruption, "offsets of a batch go backwards");
      at += offsets[part.n] - offsets[0];
    }
  }
  return out;
}

}  // namespace elasticctr
