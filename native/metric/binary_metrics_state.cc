// The saved form of BinaryMetrics: a fixed head, the non-empty buckets, and a checksum over all of it.
#include <algorithm>

#include "metric/binary_metrics.h"
#include "metric/loss_kernel.h"
#include "metric/state_coding.h"
#include "util/crc32c.h"
#include "util/status.h"
#include "util/varint.h"

namespace elasticctr::metric {
namespace {

constexpr uint32_t kMagic = 0x4d424345;  // "ECBM"
constexpr uint32_t kFormat = 2;
constexpr size_t kHead = 8 + 5 * 8 + 2 * 16 + 8;
constexpr size_t kFirstFormatBucket = 4 + 8 + 8;
constexpr size_t kMostBucketBytes = 3 * kMaxVarintBytes;
// Weights are multiples of 2^-20, and nearly always whole: those are written without the 20 bits.
constexpr uint64_t kWhole = 1 << 20;
static_assert(kWhole == static_cast<uint64_t>(kWeightOne));

[[noreturn]] void ThrowCorruption(const char* what) {
  throw Error(Code::kCorruption, std::string("saved metrics are damaged (") + what +
                                     "); use an older checkpoint or start the metrics anew");
}

uint64_t TakeNumber(const char** p, const char* end) {
  uint64_t value = 0;
  switch (TakeVarint(p, end, &value)) {
    case VarintEnd::kGood: return value;
    case VarintEnd::kCut: ThrowCorruption("length");
    case VarintEnd::kTooLarge: break;
  }
  ThrowCorruption("number");
}

char* PutWeight(char* p, uint64_t weight) {
  return PutVarint(p, weight % kWhole == 0 ? weight / kWhole << 1 : weight << 1 | 1);
}

uint64_t TakeWeight(const char** p, const char* end) {
  const uint64_t coded = TakeNumber(p, end);
  return (coded & 1) != 0 ? coded >> 1 : (coded >> 1) * kWhole;
}

}  // namespace

// The contents of a saved state that passed all checks.
struct BinaryMetrics::Saved {
  struct Used {
    uint32_t number;
    Bucket bucket;
  };
  Totals totals;
  std::vector<Used> buckets;

  explicit Saved(std::string_view state) {
    const char* p = state.data();
    if (state.size() < kHead + 4) ThrowCorruption("too short");
    if (DecodeFixed32(p) != kMagic) ThrowCorruption("they do not start like metrics");
    if (Crc32c(0, p, state.size() - 4) != DecodeFixed32(p + state.size() - 4)) ThrowCorruption("checksum");
    const uint32_t format = DecodeFixed32(p + 4);
    if (format != 1 && format != kFormat) {
      throw Error(Code::kFailedPrecondition, "saved metrics have format " + std::to_string(format) +
                                                 ", this version reads formats 1 and 2; update ElasticCTR");
    }
    totals.samples = DecodeFixed64(p + 8);
    totals.invalid_scores = DecodeFixed64(p + 16);
    totals.invalid_labels = DecodeFixed64(p + 24);
    totals.positive = DecodeFixed64(p + 32);
    totals.negative = DecodeFixed64(p + 40);
    totals.loss = Decode128(p + 48);
    totals.predicted = Decode128(p + 64);
    const uint64_t used = DecodeFixed64(p + 80);
    if (used > kScoreBuckets) ThrowCorruption("length");
    buckets.reserve(used);
    const char* const end = state.data() + state.size() - 4;
    p += kHead;
    if (format == 1) {
      TakeFirstFormat(p, end, used);
    } else {
      Take(p, end, used);
    }
    uint64_t positive = 0, negative = 0;
    for (const Used& one : buckets) {
      if (one.number >= kScoreBuckets) ThrowCorruption("bucket number");
      negative += one.bucket.negative;
      positive += one.bucket.positive;
    }
    if (positive != totals.positive || negative != totals.negative) ThrowCorruption("sums");
  }

 private:
  void TakeFirstFormat(const char* p, const char* end, uint64_t used) {
    if (static_cast<uint64_t>(end - p) != used * kFirstFormatBucket) ThrowCorruption("length");
    for (; p < end; p += kFirstFormatBucket) {
      buckets.push_back({DecodeFixed32(p), {DecodeFixed64(p + 4), DecodeFixed64(p + 12)}});
    }
  }

  void Take(const char* p, const char* end, uint64_t used) {
    uint64_t number = 0;
    for (uint64_t i = 0; i < used; ++i) {
      number = std::min<uint64_t>(number + std::min<uint64_t>(TakeNumber(&p, end), kScoreBuckets), kScoreBuckets);
      const uint64_t negative = TakeWeight(&p, end);
      buckets.push_back({static_cast<uint32_t>(number), {negative, TakeWeight(&p, end)}});
    }
    if (p != end) ThrowCorruption("length");
  }
};

std::string BinaryMetrics::Encode() const {
  std::string out;
  Append32(&out, kMagic);
  Append32(&out, kFormat);
  Append64(&out, totals_.samples);
  Append64(&out, totals_.invalid_scores);
  Append64(&out, totals_.invalid_labels);
  Append64(&out, totals_.positive);
  Append64(&out, totals_.negative);
  Append128(&out, totals_.loss);
  Append128(&out, totals_.predicted);
  Append64(&out, 0);
  uint64_t used = 0;
  size_t last = 0;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const Bucket& bucket = buckets_[b];
    if ((bucket.negative | bucket.positive) == 0) continue;
    char bytes[kMostBucketBytes];
    const char* const end = PutWeight(PutWeight(PutVarint(bytes, b - last), bucket.negative), bucket.positive);
    out.append(bytes, static_cast<size_t>(end - bytes));
    last = b;
    ++used;
  }
  EncodeFixed64(out.data() + kHead - 8, used);
  Append32(&out, Crc32c(0, out.data(), out.size()));
  return out;
}

std::string BinaryMetrics::State() const {
  std::scoped_lock lock(mutex_);
  return Encode();
}

std::string BinaryMetrics::Take() {
  std::scoped_lock lock(mutex_);
  std::string state = Encode();
  Clear();
  return state;
}

void BinaryMetrics::Add(const Saved& saved) {
  totals_ += saved.totals;
  for (const Saved::Used& one : saved.buckets) buckets_[one.number] += one.bucket;
}

void BinaryMetrics::CheckState(std::string_view state) { Saved{state}; }

void BinaryMetrics::MergeState(std::string_view state) {
  const Saved saved(state);
  std::scoped_lock lock(mutex_);
  Add(saved);
}

void BinaryMetrics::Restore(std::string_view state) {
  const Saved saved(state);
  std::scoped_lock lock(mutex_);
  Clear();
  Add(saved);
}

}  // namespace elasticctr::metric
