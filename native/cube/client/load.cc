#include "cube/client/load.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "util/status.h"

namespace elasticctr::cube {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::nanoseconds;

size_t TimeHistogram::BucketOf(uint64_t ns) {
  if (ns < 64) return static_cast<size_t>(ns);
  const int exponent = std::bit_width(ns) - 1;  // >= 6
  return static_cast<size_t>(exponent - 5) * 32 + static_cast<size_t>(ns >> (exponent - 5));
}

uint64_t TimeHistogram::UpperEdge(size_t bucket) {
  if (bucket < 64) return bucket;
  const size_t shift = bucket / 32 - 1;
  return ((bucket % 32 + 33) << shift) - 1;
}

void TimeHistogram::Add(const TimeHistogram& other) {
  for (size_t i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
}

uint64_t TimeHistogram::count() const {
  uint64_t sum = 0;
  for (const uint64_t count : counts_) sum += count;
  return sum;
}

uint64_t TimeHistogram::Percentile(double share) const {
  const auto rank = static_cast<uint64_t>(std::ceil(share * static_cast<double>(count())));
  uint64_t seen = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    seen += counts_[i];
    if (seen >= rank && seen > 0) return UpperEdge(i);
  }
  return 0;
}

void LoadResult::Add(const LoadResult& other) {
  seconds = std::max(seconds, other.seconds);
  calls += other.calls;
  keys += other.keys;
  missing += other.missing;
  degraded += other.degraded;
  max_ns = std::max(max_ns, other.max_ns);
  times.Add(other.times);
  for (size_t i = 0; i < errors.size(); ++i) errors[i] += other.errors[i];
  if (first_error.empty()) first_error = other.first_error;
  for (const auto& [version, count] : other.versions) versions[version] += count;
}

Load::Load(Client& client, std::string table, std::vector<uint64_t> keys, const LoadOptions& options)
    : client_(client),
      table_(std::move(table)),
      keys_(std::move(keys)),
      options_(options),
      started_(Clock::now()),
      running_(options.threads),
      results_(options.threads) {
  if (keys_.empty() || options_.batch == 0 || options_.threads == 0 || options_.threads > 4096) {
    throw Error(Code::kConfig, "a load needs feasigns, a batch of at least 1 and 1 to 4096 threads");
  }
  for (uint32_t i = 0; i < options_.threads; ++i) threads_.emplace_back([this, i] { Run(i); });
}

Load::~Load() {
  Stop();
  for (std::thread& thread : threads_) thread.join();
}

LoadResult Load::Finish() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  LoadResult total;
  for (const LoadResult& result : results_) total.Add(result);
  return total;
}

void Load::Run(uint32_t thread) {
  LoadResult& result = results_[thread];
  const auto end = started_ + duration_cast<Clock::duration>(duration<double>(options_.seconds));
  const auto every = duration<double>(options_.rate > 0 ? options_.threads / options_.rate : 0);
  std::vector<uint64_t> keys(options_.batch);
  size_t at = keys_.size() / options_.threads * thread;
  for (uint64_t turn = 0; !stopping_; ++turn) {
    auto begun = Clock::now();
    if (options_.rate > 0) {
      const double due = static_cast<double>(turn) + static_cast<double>(thread) / options_.threads;
      begun = started_ + duration_cast<Clock::duration>(every * due);
      if (begun < end) std::this_thread::sleep_until(begun);
    }
    if (begun >= end) break;
    for (uint64_t& key : keys) {
      key = keys_[at];
      if (++at == keys_.size()) at = 0;
    }
    const TableQuery query{table_, keys.data(), keys.size()};
    try {
      const Answer answer = client_.Get({&query, 1}, options_.lookup);
      ++result.calls;
      ++result.versions[answer.version];
      result.keys += keys.size();
      result.degraded += !answer.degraded.empty();
      const bool* found = answer.tables[0].found.get();
      result.missing += static_cast<uint64_t>(std::count(found, found + keys.size(), false));
    } catch (const Error& e) {
      ++result.errors[PlaceOf(e.code())];
      if (result.first_error.empty()) result.first_error = e.what();
    }
    const auto took = static_cast<uint64_t>(duration_cast<nanoseconds>(Clock::now() - begun).count());
    result.times.Add(took);
    result.max_ns = std::max(result.max_ns, took);
    calls_.fetch_add(1, std::memory_order_relaxed);
  }
  result.seconds = duration<double>(Clock::now() - started_).count();
  running_.fetch_sub(1);
}

}  // namespace elasticctr::cube
