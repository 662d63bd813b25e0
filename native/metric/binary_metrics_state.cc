// The saved form of BinaryMetrics: a fixed head, the buckets that are not empty, a checksum of it all.
#include "metric/binary_metrics.h"
#include "metric/state_coding.h"
#include "util/crc32c.h"
#include "util/status.h"

namespace elasticctr::metric {
namespace {

constexpr uint32_t kMagic = 0x4d424345;  // "ECBM"
constexpr uint32_t kFormat = 1;
constexpr size_t kHead = 8 + 5 * 8 + 2 * 16 + 8;
constexpr size_t kBucketSize = 4 + 8 + 8;

[[noreturn]] void ThrowCorruption(const char* what) {
  throw Error(Code::kCorruption, std::string("saved metrics are damaged (") + what +
                                     "); use an older checkpoint or start the metrics anew");
}

}  // namespace

std::string BinaryMetrics::State() const {
  std::scoped_lock lock(mutex_);
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
  uint64_t used = 0;
  for (const Bucket& bucket : buckets_) used += (bucket.negative | bucket.positive) != 0;
  Append64(&out, used);
  out.reserve(out.size() + used * kBucketSize + 4);
  for (size_t b = 0; b < buckets_.size(); ++b) {
    if ((buckets_[b].negative | buckets_[b].positive) == 0) continue;
    Append32(&out, static_cast<uint32_t>(b));
    Append64(&out, buckets_[b].negative);
    Append64(&out, buckets_[b].positive);
  }
  Append32(&out, Crc32c(0, out.data(), out.size()));
  return out;
}

void BinaryMetrics::Restore(std::string_view state) {
  const char* p = state.data();
  if (state.size() < kHead + 4) ThrowCorruption("too short");
  if (DecodeFixed32(p) != kMagic) ThrowCorruption("they do not start like metrics");
  if (Crc32c(0, p, state.size() - 4) != DecodeFixed32(p + state.size() - 4)) ThrowCorruption("checksum");
  if (DecodeFixed32(p + 4) != kFormat) {
    throw Error(Code::kFailedPrecondition, "saved metrics have format " + std::to_string(DecodeFixed32(p + 4)) +
                                               ", this version reads format 1; update ElasticCTR");
  }
  Totals totals;
  totals.samples = DecodeFixed64(p + 8);
  totals.invalid_scores = DecodeFixed64(p + 16);
  totals.invalid_labels = DecodeFixed64(p + 24);
  totals.positive = DecodeFixed64(p + 32);
  totals.negative = DecodeFixed64(p + 40);
  totals.loss = Decode128(p + 48);
  totals.predicted = Decode128(p + 64);
  const uint64_t used = DecodeFixed64(p + 80);
  if (used > kScoreBuckets || state.size() != kHead + used * kBucketSize + 4) ThrowCorruption("length");
  std::vector<Bucket> buckets(kScoreBuckets);
  uint64_t positive = 0;
  uint64_t negative = 0;
  p += kHead;
  for (uint64_t i = 0; i < used; ++i, p += kBucketSize) {
    const uint32_t b = DecodeFixed32(p);
    if (b >= kScoreBuckets) ThrowCorruption("bucket number");
    buckets[b] = {DecodeFixed64(p + 4), DecodeFixed64(p + 12)};
    negative += buckets[b].negative;
    positive += buckets[b].positive;
  }
  if (positive != totals.positive || negative != totals.negative) ThrowCorruption("sums");
  std::scoped_lock lock(mutex_);
  totals_ = totals;
  buckets_ = std::move(buckets);
}

}  // namespace elasticctr::metric
