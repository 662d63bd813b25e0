// Derived slots, computed once a request's values are known.
#include <algorithm>
#include <bit>

#include "sample/transform.h"
#include "serve/codec/samples.h"

namespace elasticctr::serve {

// Computes the derived slots of the request that just got its last sample. As with given slots, shared values are
// stored once and first.
void Samples::DeriveSlots() {
  const size_t slots = columns_.size();
  for (uint32_t d = 0; d + given_slots_ < slots; ++d) {
    const DerivedSlot& derived = plan_->derived.slots()[d];
    const auto number = static_cast<uint32_t>(given_slots_ + d);
    const auto shares = [&](size_t sample) {
      if (!derived.is_cross()) {
        const uint32_t column = derived.dense_column();
        return std::bit_cast<uint32_t>(dense(sample)[column]) == std::bit_cast<uint32_t>(shared_dense_[column]);
      }
      const Bag* own = bags(sample);
      return std::all_of(derived.parts().begin(), derived.parts().end(), [&](uint32_t part) {
        return own[part].first == shared_bags_[part].first && own[part].count == shared_bags_[part].count;
      });
    };
    bool is_shared = false;
    for (size_t i = first_sample_; i < size_; ++i) {
      if (!shares(i)) continue;
      if (!is_shared) shared_bags_[number] = Derive(derived, number, shared_bags_.data(), shared_dense_.data());
      is_shared = true;
    }
    for (size_t i = first_sample_; i < size_; ++i) {
      Bag* own = bags_.data() + i * slots;
      own[number] = is_shared && shares(i) ? shared_bags_[number] : Derive(derived, number, own, dense(i));
    }
  }
}

Samples::Bag Samples::Derive(const DerivedSlot& derived, uint32_t number, const Bag* bags, const float* dense) {
  Column& column = columns_[number];
  std::array<std::span<const uint64_t>, 3> parts;
  uint32_t count = 1;
  if (derived.is_cross()) {
    for (size_t i = 0; i < derived.parts().size(); ++i) {
      const uint32_t part = derived.parts()[i];
      parts[i] = {columns_[part].begin + bags[part].first, bags[part].count};
    }
    count = derived.CountCross({parts.data(), derived.parts().size()});
  }
  const Bag bag{static_cast<uint32_t>(column.next - column.begin), count};
  if (count == 0) return bag;
  Reserve(&column, size_t{bag.first} + count);
  if (derived.is_cross()) {
    derived.FillCross({parts.data(), derived.parts().size()}, column.next);
  } else {
    *column.next = derived.Bucket(dense[derived.dense_column()]);
  }
  column.next += count;
  StartBag(&column);
  return bag;
}

}  // namespace elasticctr::serve
