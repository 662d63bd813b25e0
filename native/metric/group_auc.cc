#include "metric/group_auc.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <tuple>

#include "metric/pairs.h"
#include "metric/score_bucket.h"
#include "util/coding.h"
#include "util/crc32c.h"
#include "util/status.h"

namespace elasticctr::metric {
namespace {

constexpr uint32_t kMagic = 0x41474345;  // "ECGA"
constexpr uint32_t kFormat = 1;
constexpr size_t kHead = 4 + 4 + 8 + 8;

}  // namespace

void GroupAuc::Update(const uint64_t* groups, const float* scores, const float* labels, const float* weights,
                      size_t n) {
  std::scoped_lock lock(mutex_);
  for (size_t i = 0; i < n; ++i) {
    const float weight = weights ? weights[i] : 1.0f;
    if (!IsValid(scores[i], labels[i], weight)) {
      ++invalid_;
      continue;
    }
    // + 0 turns -0 into 0: equal numbers are saved as equal bytes.
    samples_.push_back({static_cast<uint32_t>(groups[i] >> 32), static_cast<uint32_t>(groups[i]),
                        OrderedBits(scores[i]), labels[i] + 0.0f, weight + 0.0f});
  }
  is_sorted_ = samples_.empty();
}

void GroupAuc::Merge(const GroupAuc& other) {
  std::vector<Sample> samples;
  uint64_t invalid;
  {
    std::scoped_lock lock(other.mutex_);
    samples = other.samples_;
    invalid = other.invalid_;
  }
  std::scoped_lock lock(mutex_);
  samples_.insert(samples_.end(), samples.begin(), samples.end());
  invalid_ += invalid;
  is_sorted_ = samples_.empty();
}

void GroupAuc::Sort() const {
  if (is_sorted_) return;
  std::sort(samples_.begin(), samples_.end(), [](const Sample& a, const Sample& b) {
    return std::tie(a.group_high, a.group_low, a.order, a.label, a.weight) <
           std::tie(b.group_high, b.group_low, b.order, b.label, b.weight);
  });
  is_sorted_ = true;
}

size_t GroupAuc::EndOfGroup(size_t first) const {
  size_t end = first + 1;
  while (end < samples_.size() && samples_[end].group_low == samples_[first].group_low &&
         samples_[end].group_high == samples_[first].group_high) {
    ++end;
  }
  return end;
}

GroupedAuc GroupAuc::Compute() const {
  std::scoped_lock lock(mutex_);
  Sort();
  GroupedAuc result{std::numeric_limits<double>::quiet_NaN(), 0, 0, 0.0, invalid_};
  double sum = 0.0;
  for (size_t i = 0; i < samples_.size();) {
    PairCounter pairs;
    for (const size_t end = EndOfGroup(i); i < end; ++i) {
      pairs.Add(samples_[i].order, samples_[i].label, samples_[i].weight);
    }
    const double auc = pairs.Auc();
    if (auc != auc) {
      ++result.skipped;
      continue;
    }
    const double weight = static_cast<double>(pairs.weight()) / kWeightOne;
    ++result.groups;
    result.impressions += weight;
    sum += auc * weight;
  }
  if (result.groups > 0) result.auc = sum / result.impressions;
  return result;
}

size_t GroupAuc::samples() const {
  std::scoped_lock lock(mutex_);
  return samples_.size();
}

std::string GroupAuc::State() const {
  std::scoped_lock lock(mutex_);
  Sort();
  std::string out(kHead + samples_.size() * sizeof(Sample) + 4, '\0');
  EncodeFixed32(&out[0], kMagic);
  EncodeFixed32(&out[4], kFormat);
  EncodeFixed64(&out[8], invalid_);
  EncodeFixed64(&out[16], samples_.size());
  if (!samples_.empty()) std::memcpy(&out[kHead], samples_.data(), samples_.size() * sizeof(Sample));
  EncodeFixed32(&out[out.size() - 4], Crc32c(0, out.data(), out.size() - 4));
  return out;
}

void GroupAuc::Restore(std::string_view state) {
  const auto check = [](bool ok, const char* what) {
    if (!ok) {
      throw Error(Code::kCorruption, std::string("saved group metrics are damaged (") + what +
                                         "); use an older checkpoint or start the metrics anew");
    }
  };
  const char* p = state.data();
  check(state.size() >= kHead + 4, "too short");
  check(DecodeFixed32(p) == kMagic, "they do not start like group metrics");
  check(DecodeFixed32(p + state.size() - 4) == Crc32c(0, p, state.size() - 4), "checksum");
  check(DecodeFixed32(p + 4) == kFormat, "unknown format version");
  const size_t bytes = state.size() - kHead - 4;
  check(bytes % sizeof(Sample) == 0 && bytes / sizeof(Sample) == DecodeFixed64(p + 16), "length");
  std::vector<Sample> samples(bytes / sizeof(Sample));
  if (bytes > 0) std::memcpy(samples.data(), p + kHead, bytes);
  for (const Sample& sample : samples) check(IsValid(0.0f, sample.label, sample.weight), "label or weight");
  std::scoped_lock lock(mutex_);
  samples_ = std::move(samples);
  invalid_ = DecodeFixed64(p + 8);
  is_sorted_ = false;
}

}  // namespace elasticctr::metric
