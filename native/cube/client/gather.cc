#include "cube/client/gather.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "cube/index/encoding.h"
#include "util/hash.h"

namespace elasticctr::cube {

void Gather::Plan(const Ask& ask, std::span<const uint64_t> max_keys, std::vector<Leg>* legs) {
  ask_ = ask;
  rows_ = std::make_unique_for_overwrite<uint8_t[]>(ask.count * ask.shape.out_bytes());
  found_ = std::make_unique_for_overwrite<bool[]>(ask.count);
  is_everything_ = true;
  wanted_.clear();
  repeats_.clear();
  places_.clear();
  bases_.clear();
  first_leg_ = legs->size();
  hits_ = sent_ = missing_ = unanswered_ = 0;
  if (ask.cache != nullptr) AskCache();
  if (ask.merge_repeats) MergeRepeats();
  Partition(max_keys, legs);
}

void Gather::AskCache() {
  is_everything_ = false;
  row_.resize(ask_.shape.row_bytes);
  for (size_t i = 0; i < ask_.count; ++i) {
    const auto known =
        ask_.cache->Get({ask_.version, ask_.feasigns[i], ask_.cached_as}, row_.data(), ask_.shape.row_bytes);
    if (known == HotCache::Result::kUnknown) {
      wanted_.push_back(static_cast<uint32_t>(i));
    } else {
      Place(i, row_.data(), known == HotCache::Result::kFound);
      ++hits_;
    }
  }
}

void Gather::MergeRepeats() {
  const size_t count = is_everything_ ? ask_.count : wanted_.size();
  if (count < 2) return;
  slots_.assign(std::bit_ceil(count * 2), UINT32_MAX);
  const size_t mask = slots_.size() - 1;
  std::vector<uint32_t> distinct;
  distinct.reserve(count);
  for (size_t k = 0; k < count; ++k) {
    const auto i = is_everything_ ? static_cast<uint32_t>(k) : wanted_[k];
    const uint64_t feasign = ask_.feasigns[i];
    size_t slot = Mix64(feasign) & mask;
    while (slots_[slot] != UINT32_MAX && ask_.feasigns[slots_[slot]] != feasign) slot = (slot + 1) & mask;
    if (slots_[slot] == UINT32_MAX) {
      slots_[slot] = i;
      distinct.push_back(i);
    } else {
      repeats_.push_back({i, slots_[slot]});
    }
  }
  if (repeats_.empty()) return;
  wanted_ = std::move(distinct);
  is_everything_ = false;
}

void Gather::Partition(std::span<const uint64_t> max_keys, std::vector<Leg>* legs) {
  const size_t count = is_everything_ ? ask_.count : wanted_.size();
  const auto shards = static_cast<uint32_t>(max_keys.size());
  sent_ = count;
  if (is_everything_ && shards == 1) return AddLegs(0, ask_.feasigns, 0, count, max_keys[0], legs);
  const auto position = [this](size_t k) { return is_everything_ ? static_cast<uint32_t>(k) : wanted_[k]; };
  keys_.resize(count);
  if (shards == 1) {
    for (size_t k = 0; k < count; ++k) keys_[k] = ask_.feasigns[wanted_[k]];
    places_ = wanted_;
    return AddLegs(0, keys_.data(), 0, count, max_keys[0], legs);
  }
  places_.resize(count);
  shards_.resize(count);
  starts_.assign(shards + 1, 0);
  const bool modulo = ask_.shape.sharding == Sharding::kModulo;
  for (size_t k = 0; k < count; ++k) {
    const uint64_t feasign = ask_.feasigns[position(k)];
    shards_[k] = modulo ? static_cast<uint32_t>(feasign % shards) : ShardOf(feasign, shards);
    ++starts_[shards_[k] + 1];
  }
  for (uint32_t s = 0; s < shards; ++s) starts_[s + 1] += starts_[s];
  std::vector<size_t>& next = starts_;  // each becomes the start of the next
  for (size_t k = 0; k < count; ++k) {
    const size_t at = next[shards_[k]]++;
    places_[at] = position(k);
    keys_[at] = ask_.feasigns[position(k)];
  }
  size_t start = 0;
  for (uint32_t s = 0; s < shards; ++s) {
    AddLegs(s, keys_.data() + start, start, next[s] - start, max_keys[s], legs);
    start = next[s];
  }
}

void Gather::AddLegs(uint32_t shard, const uint64_t* keys, size_t base, size_t count, uint64_t max_keys,
                     std::vector<Leg>* legs) {
  const uint64_t fit = std::max<uint64_t>(1, (net::wire::kMaxAnswerBytes >> 1) / ask_.shape.row_bytes);
  const size_t most = std::min(max_keys, fit);
  const bool is_direct = places_.empty() && ask_.cache == nullptr &&
                         (ask_.shape.encoding == Encoding::kFloat32 || ask_.shape.encoding == Encoding::kRaw);
  for (size_t done = 0; done < count; done += most) {
    Leg leg;
    leg.shard = shard;
    leg.table = ask_.table;
    leg.version = ask_.version;
    leg.keys = keys + done;
    leg.count = std::min(most, count - done);
    leg.row_bytes = ask_.shape.row_bytes;
    if (is_direct) leg.rows = rows_.get() + done * ask_.shape.row_bytes;
    bases_.push_back(base + done);
    legs->push_back(leg);
  }
}

void Gather::Place(size_t i, const uint8_t* row, bool is_found) {
  uint8_t* out = rows_.get() + i * ask_.shape.out_bytes();
  found_[i] = is_found;
  if (!is_found) {
    ++missing_;
    std::memset(out, 0, ask_.shape.out_bytes());
  } else if (ask_.shape.encoding == Encoding::kRaw) {
    std::memcpy(out, row, ask_.shape.row_bytes);
  } else {
    DecodeRows(row, 1, ask_.shape.dim, ask_.shape.encoding, reinterpret_cast<float*>(out));
  }
}

void Gather::PlaceNothing(size_t leg, size_t count) {
  const size_t width = ask_.shape.out_bytes();
  unanswered_ += count;
  for (size_t j = 0; j < count; ++j) {
    const size_t i = places_.empty() ? bases_[leg] + j : places_[bases_[leg] + j];
    std::memset(rows_.get() + i * width, 0, width);
    found_[i] = false;
  }
}

void Gather::Collect(std::span<const Leg> legs) {
  for (size_t k = 0; k < bases_.size(); ++k) {
    const Leg& leg = legs[first_leg_ + k];
    const uint8_t* rows = leg.answer != nullptr ? leg.answer->rows() : nullptr;
    const uint8_t* found = leg.answer != nullptr ? leg.answer->found() : nullptr;
    const bool is_placed = rows == leg.rows;
    if (rows == nullptr) {
      PlaceNothing(k, leg.count);
      continue;
    }
    for (size_t j = 0; j < leg.count; ++j) {
      const size_t i = places_.empty() ? bases_[k] + j : places_[bases_[k] + j];
      const bool is_found = (found[j / 8] >> (j % 8) & 1) != 0;
      const uint8_t* row = rows + j * leg.row_bytes;
      // The server should have sent zeros for rows that were not found, but that is not trusted.
      if (is_placed && is_found) {
        found_[i] = true;
      } else {
        Place(i, row, is_found);
      }
      if (ask_.cache != nullptr) {
        ask_.cache->Put({ask_.version, ask_.feasigns[i], ask_.cached_as}, is_found ? row : nullptr, leg.row_bytes);
      }
    }
  }
  const size_t width = ask_.shape.out_bytes();
  for (const Repeat& repeat : repeats_) {
    std::memcpy(rows_.get() + repeat.at * width, rows_.get() + repeat.first * width, width);
    found_[repeat.at] = found_[repeat.first];
    missing_ += !found_[repeat.at];
  }
}

}  // namespace elasticctr::cube
