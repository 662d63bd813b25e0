// Where the last pulls of a connection found their rows: a trainer pushes the rows it pulled, so they need not be
// looked up again. A table compares the feasign in a row before it uses the row, so rows noted for the wrong push only
// cost time. Used by one thread.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ps/wire/frames.h"
#include "table/buffer.h"
#include "util/coding.h"

namespace elasticctr::ps {

class FoundRows {
 public:
  // Makes room for the rows of one more pull, replacing the oldest.
  void Begin() {
    at_ = (at_ + 1) % kPulls;
    pulls_[at_].used = 0;
  }

  // Room for the row numbers of one table of that pull, null if there are too many to keep.
  uint32_t* Add(const PullTable& table) {
    if (table.count == 0 || table.count > kMostRows) return nullptr;
    Pull& pull = pulls_[at_];
    if (pull.used == pull.tables.size()) pull.tables.emplace_back();
    Found& found = pull.tables[pull.used++];
    found.number = table.number;
    found.count = table.count;
    found.first = FeasignAt(table.feasigns, 0);
    found.last = FeasignAt(table.feasigns, table.count - 1);
    found.generation = 0;
    return found.rows.Reserve(table.count);
  }
  // For the table added last.
  void SetGeneration(uint64_t generation) { pulls_[at_].tables[pulls_[at_].used - 1].generation = generation; }

  // Sets the row numbers in the tables of a push.
  void Fill(std::vector<PushTable>* tables) const {
    for (PushTable& table : *tables) {
      if (table.count == 0) continue;
      const Found* const found = Find(table);
      if (found == nullptr) continue;
      table.rows = found->rows.data();
      table.generation = found->generation;
    }
  }

 private:
  static constexpr size_t kPulls = 4;  // a trainer has two pushes and a pull in flight
  static constexpr uint32_t kMostRows = 1u << 20;

  struct Found {
    uint32_t number = 0, count = 0;
    uint64_t first = 0, last = 0;  // feasigns
    uint64_t generation = 0;
    Buffer<uint32_t> rows;
  };
  struct Pull {
    size_t used = 0;  // of `tables`, whose memory is kept
    std::vector<Found> tables;
  };

  static uint64_t FeasignAt(const uint64_t* feasigns, size_t i) {
    return DecodeFixed64(reinterpret_cast<const uint8_t*>(feasigns) + i * sizeof(uint64_t));
  }

  const Found* Find(const PushTable& table) const {
    const uint64_t first = FeasignAt(table.feasigns, 0), last = FeasignAt(table.feasigns, table.count - 1);
    for (const Pull& pull : pulls_) {
      for (size_t i = 0; i < pull.used; ++i) {
        const Found& found = pull.tables[i];
        if (found.number == table.number && found.count == table.count && found.first == first && found.last == last) {
          return &found;
        }
      }
    }
    return nullptr;
  }

  std::array<Pull, kPulls> pulls_;
  size_t at_ = 0;
};

}  // namespace elasticctr::ps
