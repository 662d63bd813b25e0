// Merges layers of one table: in memory for the store, to a file for compaction.
#include <cstring>
#include <queue>

#include "cube/build/packer.h"
#include "cube/build/writer.h"
#include "cube/index/index.h"

namespace elasticctr::cube {
namespace {

// Calls `take` for every entry of two images in order; the newer entry wins if both have the feasign.
template <typename Take>
void Walk(const Image& newer, const Image& older, Take take) {
  Cursor a(newer), b(older);
  while (!a.is_done() || !b.is_done()) {
    if (b.is_done() || (!a.is_done() && !(b.entry() < a.entry()))) {
      if (!b.is_done() && b.entry().feasign == a.entry().feasign) b.Next();
      take(a.entry());
      a.Next();
    } else {
      take(b.entry());
      b.Next();
    }
  }
}

// The same for any number of layers, newest first.
template <typename Take>
void WalkAll(const std::vector<std::shared_ptr<const Index>>& layers, Take take) {
  std::vector<Cursor> cursors;
  for (const auto& layer : layers) cursors.emplace_back(layer->image());
  const auto comes_later = [&](size_t a, size_t b) {
    const Entry &x = cursors[a].entry(), &y = cursors[b].entry();
    return y < x || (!(x < y) && b < a);
  };
  std::priority_queue<size_t, std::vector<size_t>, decltype(comes_later)> heap(comes_later);
  for (size_t i = 0; i < cursors.size(); ++i) {
    if (!cursors[i].is_done()) heap.push(i);
  }
  const auto step = [&] {
    const size_t i = heap.top();
    heap.pop();
    cursors[i].Next();
    if (!cursors[i].is_done()) heap.push(i);
  };
  while (!heap.empty()) {
    const Entry entry = cursors[heap.top()].entry();
    take(entry);
    while (!heap.empty() && cursors[heap.top()].entry().feasign == entry.feasign) step();
  }
}

}  // namespace

std::shared_ptr<const Index> Index::Merge(const Index& newer, const Index& older) {
  std::shared_ptr<Index> merged(new Index);
  IndexInfo& info = merged->info_;
  info = newer.info();
  info.kind = Kind::kDelta;
  info.parent = older.info().parent;
  info.rows = info.tombstones = info.file_bytes = 0;
  // Buckets are sized by the result, and deltas often hold the same feasigns: count first.
  Walk(newer.image(), older.image(), [&](const Entry& e) { ++(e.row == nullptr ? info.tombstones : info.rows); });
  info.homes = HomesFor(info.rows + info.tombstones);

  const uint64_t buckets_at = RoundUp(info.rows * info.row_bytes, sizeof(Bucket));
  const uint64_t most_buckets = info.homes + (info.rows + info.tombstones) / Bucket::kFeasigns + 1;
  merged->region_ = Region::Allocate(buckets_at + most_buckets * sizeof(Bucket));
  uint8_t* rows = merged->region_.data();
  auto* buckets = reinterpret_cast<Bucket*>(merged->region_.data() + buckets_at);
  Packer packer(info.homes, [&buckets](const Bucket& bucket) { *buckets++ = bucket; });
  Walk(newer.image(), older.image(), [&](const Entry& e) {
    packer.Add(e.place, e.feasign, e.row == nullptr);
    if (e.row == nullptr) return;
    std::memcpy(rows, e.row, info.row_bytes);
    rows += info.row_bytes;
  });
  info.buckets = packer.Finish();
  merged->region_.Shrink(buckets_at + info.buckets * sizeof(Bucket));
  merged->image_ = Image::Of(info, merged->region_.data(), merged->region_.data() + buckets_at);
  return merged;
}

IndexInfo Index::Compact(const std::vector<std::shared_ptr<const Index>>& layers, const IndexInfo& info,
                         const std::string& path) {
  IndexInfo base = info;
  base.kind = Kind::kBase;
  base.parent = base.rows = base.tombstones = 0;
  WalkAll(layers, [&](const Entry& entry) { base.rows += entry.row != nullptr; });
  Writer writer(path, base);
  WalkAll(layers, [&](const Entry& entry) {
    if (entry.row != nullptr) writer.Add(&entry, 1);
  });
  return writer.Finish(false);
}

}  // namespace elasticctr::cube
