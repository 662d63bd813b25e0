#include "ps/shard/sums.h"

#include <algorithm>
#include <cstring>

#include "util/coding.h"
#include "util/hash.h"
#include "util/target.h"

namespace elasticctr::ps {
namespace {

constexpr size_t kBlockRows = 64;

template <typename T>
bool IsAligned(const T* array) {
  return reinterpret_cast<uintptr_t>(array) % alignof(T) == 0;
}

const PushTable* Find(const PushRequest& push, uint32_t number) {
  for (const PushTable& table : push.tables) {
    if (table.number == number) return &table;
  }
  return nullptr;
}

bool IsAhead(const std::vector<Share>& ahead, uint64_t feasign) {
  const uint32_t bucket = BucketOf(feasign);
  return std::any_of(ahead.begin(), ahead.end(),
                     [=](const Share& share) { return bucket >= share.first_bucket && bucket < share.last_bucket; });
}

float FloatAt(const float* array, size_t i) {
  float value;
  std::memcpy(&value, reinterpret_cast<const uint8_t*>(array) + i * sizeof value, sizeof value);
  return value;
}

uint64_t WordAt(const uint64_t* array, size_t i) {
  return DecodeFixed64(reinterpret_cast<const uint8_t*>(array) + i * sizeof(uint64_t));
}

// Numbers feasigns in the order of their first occurrence. Open addressing, at most half full.
class Places {
 public:
  explicit Places(size_t most) {
    size_t size = 64;
    while (size < 2 * most) size *= 2;
    slots_.resize(size, 0);
  }
  size_t Of(uint64_t feasign, std::vector<uint64_t>* feasigns) {
    const size_t mask = slots_.size() - 1;
    for (size_t at = Mix64(feasign) & mask;; at = (at + 1) & mask) {
      if (slots_[at] == 0) {
        feasigns->push_back(feasign);
        slots_[at] = static_cast<uint32_t>(feasigns->size());
        return feasigns->size() - 1;
      }
      if ((*feasigns)[slots_[at] - 1] == feasign) return slots_[at] - 1;
    }
  }

 private:
  std::vector<uint32_t> slots_;  // place + 1; 0: free
};

ELASTICCTR_CLONES void AddScaled(float* __restrict sum, const float* __restrict row, size_t dim, float share) {
  for (size_t j = 0; j < dim; ++j) sum[j] += share * row[j];
}

}  // namespace

TableSum::TableSum(std::span<const Contribution> contributions, uint32_t number, uint32_t dim) : dim_(dim) {
  const Contribution* only = nullptr;
  size_t count = 0;
  for (const Contribution& contribution : contributions) {
    const PushTable* table = Find(*contribution.push, number);
    if (table == nullptr || table->count == 0) continue;
    only = &contribution;
    ++count;
  }
  if (count == 1 && only->share == 1.0f && only->ahead.empty()) {
    TakeOne(*only, *Find(*only->push, number));
  } else if (count != 0) {
    AddUp(contributions, number);
  }
}

void TableSum::TakeOne(const Contribution& contribution, const PushTable& table) {
  single_ = &table;
  encoding_ = contribution.push->encoding;
  if (IsAligned(table.feasigns)) {
    feasigns_ = {table.feasigns, table.count};
  } else {
    feasign_copy_.resize(table.count);
    std::memcpy(feasign_copy_.data(), table.feasigns, table.count * sizeof(uint64_t));
    feasigns_ = feasign_copy_;
  }
  if (table.masks != nullptr) {
    masks_.resize(table.count);
    std::memcpy(masks_.data(), table.masks, table.count * sizeof(uint64_t));
  }
  if (IsAligned(table.shows) && IsAligned(table.clicks)) return;
  shows_.resize(table.count);
  clicks_.resize(table.count);
  std::memcpy(shows_.data(), table.shows, table.count * sizeof(float));
  std::memcpy(clicks_.data(), table.clicks, table.count * sizeof(float));
}

void TableSum::AddUp(std::span<const Contribution> contributions, uint32_t number) {
  size_t most = 0;
  bool has_masks = false;
  for (const Contribution& contribution : contributions) {
    const PushTable* table = Find(*contribution.push, number);
    if (table == nullptr) continue;
    most += table->count;
    has_masks |= table->masks != nullptr;
  }
  Places places(most);
  std::vector<float> block(kBlockRows * dim_);
  for (const Contribution& contribution : contributions) {
    const PushTable* table = Find(*contribution.push, number);
    if (table == nullptr) continue;
    const Encoding encoding = contribution.push->encoding;
    const size_t row_bytes = EncodedBytes(encoding, dim_);
    for (size_t first = 0; first < table->count; first += kBlockRows) {
      const size_t count = std::min<size_t>(kBlockRows, table->count - first);
      DecodeRows(encoding, table->gradients + first * row_bytes, count, dim_, block.data());
      for (size_t i = 0; i < count; ++i) {
        const uint64_t feasign = WordAt(table->feasigns, first + i);
        if (!contribution.ahead.empty() && IsAhead(contribution.ahead, feasign)) continue;
        const size_t place = places.Of(feasign, &feasign_copy_);
        if (place == shows_.size()) {
          shows_.push_back(0.0f);
          clicks_.push_back(0.0f);
          if (has_masks) masks_.push_back(0);
          sums_.resize(sums_.size() + dim_, 0.0f);
        }
        shows_[place] += FloatAt(table->shows, first + i);
        clicks_[place] += FloatAt(table->clicks, first + i);
        if (has_masks) masks_[place] |= table->masks == nullptr ? ~uint64_t{0} : WordAt(table->masks, first + i);
        AddScaled(sums_.data() + place * dim_, block.data() + i * dim_, dim_, contribution.share);
      }
    }
  }
  feasigns_ = feasign_copy_;
}

RowGradients TableSum::Gradients() const {
  RowGradients rows;
  rows.feasigns = feasigns_;
  rows.shows = shows_.empty() && single_ != nullptr ? single_->shows : shows_.data();
  rows.clicks = clicks_.empty() && single_ != nullptr ? single_->clicks : clicks_.data();
  rows.masks = masks_.empty() ? nullptr : masks_.data();
  if (single_ != nullptr) {
    rows.rows = single_->rows;
    rows.generation = single_->generation;
  }
  rows.fill = [this](size_t first, size_t count, float* out) {
    if (single_ != nullptr) {
      DecodeRows(encoding_, single_->gradients + first * EncodedBytes(encoding_, dim_), count, dim_, out);
    } else {
      std::memcpy(out, sums_.data() + first * dim_, count * dim_ * sizeof(float));
    }
  };
  return rows;
}

}  // namespace elasticctr::ps
