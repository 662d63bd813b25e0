#include "cube/build/builder.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "cube/build/partitions.h"
#include "cube/build/writer.h"
#include "util/coding.h"
#include "util/status.h"

namespace elasticctr::cube {
namespace {

// A record is the feasign, its row and, if feasigns can be gone, one byte: 1 for a tombstone, whose row is meaningless.
constexpr uint64_t kPartitionBytes = uint64_t{1} << 20;  // sorted inside the cache of a core
constexpr size_t kMostPartitions = 8192;
constexpr uint64_t kLeastMemory = uint64_t{16} << 20;
constexpr uint64_t kUnknownBytes = uint64_t{1} << 32;  // assumed for an unknown number of rows

// A thread's scratch memory for sorting a partition.
struct Scratch {
  std::vector<uint8_t> buffer;
  std::vector<uint32_t> starts;
  std::vector<Entry> entries;
};

// Stable. Bins hold a few entries unless an attacker chose the feasigns.
void SortBin(Entry* first, Entry* last) {
  constexpr ptrdiff_t kFew = 24;
  if (last - first > kFew) return std::stable_sort(first, last);
  for (Entry* at = first + 1; at < last; ++at) {
    if (!(*at < at[-1])) continue;
    const Entry entry = *at;
    Entry* to = at;
    for (; to > first && entry < to[-1]; --to) *to = to[-1];
    *to = entry;
  }
}

// The number of partitions in one shard: a power of two.
size_t RangesFor(const BuilderOptions& options, size_t record_bytes) {
  const uint64_t bytes = options.expected_rows == 0 ? kUnknownBytes : options.expected_rows * record_bytes;
  const uint64_t wanted = std::max<uint64_t>(bytes / kPartitionBytes / options.info.shards, 1);
  // Every partition needs a few records of memory.
  const uint64_t affordable = options.memory_bytes / 16 / record_bytes / options.info.shards;
  const uint64_t most = std::max<uint64_t>(1, std::min<uint64_t>(kMostPartitions / options.info.shards, affordable));
  return std::bit_floor(std::min(std::bit_ceil(wanted), most));
}

BuilderOptions Checked(BuilderOptions options) {
  options.info.shard = 0;
  options.info.rows = options.info.tombstones = 0;
  CheckInfo(options.info);
  if (options.memory_bytes < kLeastMemory) {
    throw Error(Code::kConfig, "a build needs at least 16 MiB of memory, not " + std::to_string(options.memory_bytes));
  }
  options.threads = std::clamp(options.threads, 1u, 64u);
  return options;
}

}  // namespace

struct Builder::Rep {
  explicit Rep(const BuilderOptions& given)
      : options(Checked(given)),
        row_bytes(options.info.row_bytes),
        has_gone(options.is_chain || options.info.kind == Kind::kDelta),
        ranges(RangesFor(options, 8 + row_bytes + 1)),
        range_bits(static_cast<unsigned>(std::countr_zero(ranges))),
        partitions(ranges * options.info.shards, 8 + row_bytes + (has_gone ? 1 : 0), options.memory_bytes / 8 * 5,
                   options.run_directory),
        counted(options.info.shards, options.info) {
    for (uint32_t shard = 0; shard < options.info.shards; ++shard) counted[shard].shard = shard;
  }

  size_t PartitionOf(uint64_t feasign, uint64_t mixed) const {
    const uint32_t shards = options.info.shards;
    const size_t shard = options.info.sharding == Sharding::kBuckets
                             ? static_cast<uint32_t>(mixed >> (64 - kBucketBits)) * shards >> kBucketBits
                             : feasign % shards;
    const uint64_t place = PlaceOfMixed(mixed);
    return shard * ranges + (range_bits == 0 ? 0 : place >> (64 - range_bits));
  }

  uint64_t Sort(size_t partition, Scratch* scratch) const;
  void Pass(const std::vector<std::string>& paths, bool is_counted, BuilderResult* result);

  const BuilderOptions options;
  const size_t row_bytes;
  const bool has_gone;
  const size_t ranges;
  const unsigned range_bits;
  Partitions partitions;
  std::vector<IndexInfo> counted;  // the numbers for each shard's file
  std::atomic<uint64_t> sorted{0};
};

// One pass of counting sort by the next bits of the place leaves a few entries in each bin. It is stable, so the last
// of equal feasigns stays last. Returns the number of records that were replaced.
uint64_t Builder::Rep::Sort(size_t partition, Scratch* scratch) const {
  const auto stretches = partitions.Read(partition, &scratch->buffer);
  const size_t record_bytes = partitions.record_bytes(), n = partitions.records(partition);
  const unsigned bits = std::min(22u, static_cast<unsigned>(std::bit_width(n / 4)));
  const auto bin_of = [&](uint64_t place) { return bits == 0 ? 0 : place << range_bits >> (64 - bits); };
  auto& starts = scratch->starts;
  starts.assign((size_t{1} << bits) + 1, 0);
  for (const auto& stretch : stretches) {
    for (size_t i = 0; i < stretch.records; ++i) {
      ++starts[bin_of(PlaceOf(DecodeFixed64(stretch.data + i * record_bytes))) + 1];
    }
  }
  for (size_t b = 1; b < starts.size(); ++b) starts[b] += starts[b - 1];
  auto& entries = scratch->entries;
  entries.resize(n);
  for (const auto& stretch : stretches) {
    for (size_t i = 0; i < stretch.records; ++i) {
      const uint8_t* record = stretch.data + i * record_bytes;
      const uint64_t feasign = DecodeFixed64(record), place = PlaceOf(feasign);
      const bool is_dead = has_gone && record[8 + row_bytes] != 0;
      entries[starts[bin_of(place)]++] = {place, feasign, is_dead ? nullptr : record + 8};
    }
  }
  // Each start has advanced to the end of its bin.
  for (size_t b = 0; b + 1 < starts.size(); ++b) {
    SortBin(entries.data() + (b == 0 ? 0 : starts[b - 1]), entries.data() + starts[b]);
  }
  size_t kept = 0;
  for (size_t i = 0; i < n; ++i) {
    if (i + 1 < n && entries[i + 1].feasign == entries[i].feasign) continue;
    if (options.is_chain && entries[i].row == nullptr) continue;
    entries[kept++] = entries[i];
  }
  entries.resize(kept);
  return n - kept;
}

// Sorts every partition and writes them in order. A file begins with the number of its entries. If replaced records
// turn up later, that shard is only counted, and a second pass writes it.
void Builder::Rep::Pass(const std::vector<std::string>& paths, bool is_counted, BuilderResult* result) {
  const size_t shards = options.info.shards;
  std::vector<std::unique_ptr<Writer>> writers(shards);
  std::vector<IndexInfo> seen(shards);
  std::vector<uint64_t> duplicates(shards);
  std::vector<size_t> turns(shards, 0);  // the range that each shard's writer waits for
  std::mutex mutex;
  std::condition_variable turned;
  std::exception_ptr error;
  std::atomic<size_t> next{0};
  result->files.assign(shards, {});

  const auto work = [&] {
    Scratch scratch;
    try {
      for (size_t p; (p = next.fetch_add(1)) < partitions.size();) {
        const size_t shard = p / ranges, range = p % ranges;
        const uint64_t repeated = Sort(p, &scratch);
        const std::vector<Entry>& entries = scratch.entries;
        {
          std::unique_lock lock(mutex);
          turned.wait(lock, [&] { return turns[shard] == range || error != nullptr; });
          if (error != nullptr) return;
        }
        // Only the thread whose turn it is accesses this shard.
        if (range == 0) writers[shard] = std::make_unique<Writer>(paths[shard], counted[shard]);
        duplicates[shard] += repeated;
        uint64_t live = 0;
        for (const Entry& entry : entries) live += entry.row != nullptr;
        seen[shard].rows += live;
        seen[shard].tombstones += entries.size() - live;
        if (is_counted || duplicates[shard] == 0) writers[shard]->Add(entries.data(), entries.size());
        if (range + 1 == ranges) {
          if (is_counted || duplicates[shard] == 0) result->files[shard] = writers[shard]->Finish(false);
          writers[shard].reset();
        }
        sorted.fetch_add(entries.size(), std::memory_order_relaxed);
        {
          std::lock_guard lock(mutex);
          turns[shard] = range + 1;
        }
        turned.notify_all();
      }
    } catch (...) {
      std::lock_guard lock(mutex);
      if (error == nullptr) error = std::current_exception();
      turned.notify_all();
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < options.threads; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  if (error != nullptr) std::rethrow_exception(error);
  for (size_t shard = 0; shard < shards; ++shard) {
    result->duplicates += duplicates[shard];
    counted[shard].rows = seen[shard].rows;
    counted[shard].tombstones = seen[shard].tombstones;
  }
}

Builder::Builder(const BuilderOptions& options) : rep_(std::make_unique<Rep>(options)) {}
Builder::~Builder() = default;

uint32_t Builder::row_bytes() const { return rep_->options.info.row_bytes; }

void Builder::Add(const uint64_t* feasigns, const uint8_t* rows, size_t n) {
  Rep& rep = *rep_;
  for (size_t i = 0; i < n; ++i) {
    uint8_t* record = rep.partitions.Append(rep.PartitionOf(feasigns[i], Mix64(feasigns[i])));
    EncodeFixed64(record, feasigns[i]);
    std::memcpy(record + 8, rows + i * rep.row_bytes, rep.row_bytes);
    if (rep.has_gone) record[8 + rep.row_bytes] = 0;
  }
}

void Builder::AddGone(const uint64_t* feasigns, size_t n) {
  Rep& rep = *rep_;
  if (n == 0) return;
  if (!rep.has_gone) {
    throw Error(Code::kFailedPrecondition, rep.options.info.name + ": a base cannot say that feasigns are gone");
  }
  for (size_t i = 0; i < n; ++i) {
    const size_t partition = rep.PartitionOf(feasigns[i], Mix64(feasigns[i]));
    ++rep.counted[partition / rep.ranges].tombstones;
    uint8_t* record = rep.partitions.Append(partition);
    EncodeFixed64(record, feasigns[i]);
    std::memset(record + 8, 0, rep.row_bytes);
    record[8 + rep.row_bytes] = 1;
  }
}

BuilderResult Builder::Finish(const std::vector<std::string>& paths) {
  Rep& rep = *rep_;
  if (paths.size() != rep.counted.size()) {
    throw Error(Code::kInternal, "a build of " + std::to_string(rep.counted.size()) + " shards was given " +
                                     std::to_string(paths.size()) + " paths");
  }
  for (size_t p = 0; p < rep.partitions.size(); ++p) rep.counted[p / rep.ranges].rows += rep.partitions.records(p);
  for (IndexInfo& info : rep.counted) {
    info.rows -= info.tombstones;
    if (rep.options.is_chain) info.tombstones = 0;
  }
  BuilderResult result;
  rep.Pass(paths, false, &result);
  if (result.duplicates > 0) {
    BuilderResult again;
    rep.Pass(paths, true, &again);
    result.files = std::move(again.files);
  }
  result.run_bytes = rep.partitions.run_bytes();
  return result;
}

uint64_t Builder::progress() const { return rep_->sorted.load(std::memory_order_relaxed); }

}  // namespace elasticctr::cube
