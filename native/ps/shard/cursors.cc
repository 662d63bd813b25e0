#include "ps/shard/cursors.h"

#include <algorithm>
#include <set>

namespace elasticctr::ps {

uint32_t Cursors::Get(uint64_t chunk) const {
  if (chunk < forgotten_) return kOver;
  const auto found = applied_.find(chunk);
  return found == applied_.end() ? 0 : found->second;
}

void Cursors::Move(uint64_t chunk, uint32_t to) {
  applied_[chunk] = to;
  const auto parts = ahead_.find(chunk);
  if (parts == ahead_.end()) return;
  std::erase_if(parts->second, [=](const auto& part) { return part.second <= to; });
  if (parts->second.empty()) ahead_.erase(parts);
}

void Cursors::Forget(uint64_t below) {
  if (below <= forgotten_) return;
  forgotten_ = below;
  std::erase_if(applied_, [=](const auto& entry) { return entry.first < below; });
  ahead_.erase(ahead_.begin(), ahead_.lower_bound(below));
}

std::vector<Share> Cursors::Ahead(uint64_t chunk, uint32_t from) const {
  std::vector<Share> shares;
  const auto parts = ahead_.find(chunk);
  if (parts == ahead_.end()) return shares;
  for (const auto& [share, cursor] : parts->second) {
    if (cursor > from) shares.push_back(share);
  }
  return shares;
}

void Cursors::Restore(const std::vector<Part>& parts) {
  applied_.clear();
  ahead_.clear();
  forgotten_ = 0;
  std::set<uint64_t> chunks;
  for (const Part& part : parts) {
    // A chunk that one of them has dropped is finished in the ledger.
    forgotten_ = std::max(forgotten_, part.forgotten);
    for (const auto& [chunk, cursor] : part.applied) chunks.insert(chunk);
  }
  for (const uint64_t chunk : chunks) {
    if (chunk < forgotten_) continue;
    std::vector<std::pair<Share, uint32_t>> cursors;
    uint32_t smallest = kOver;
    for (const Part& part : parts) {
      const auto applied = part.applied.find(chunk);
      const uint32_t cursor = applied == part.applied.end() ? 0 : applied->second;
      cursors.emplace_back(part.share, cursor);
      smallest = std::min(smallest, cursor);
      const auto ahead = part.ahead.find(chunk);
      if (ahead != part.ahead.end()) cursors.insert(cursors.end(), ahead->second.begin(), ahead->second.end());
    }
    if (smallest != 0) applied_[chunk] = smallest;
    std::erase_if(cursors, [=](const auto& entry) { return entry.second <= smallest; });
    if (!cursors.empty()) ahead_[chunk] = std::move(cursors);
  }
}

}  // namespace elasticctr::ps
