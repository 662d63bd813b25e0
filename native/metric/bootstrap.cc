#include "metric/bootstrap.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <tuple>

#include "metric/loss_kernel.h"
#include "metric/pairs.h"
#include "metric/score_bucket.h"
#include "metric/state_coding.h"
#include "util/crc32c.h"
#include "util/hash.h"
#include "util/status.h"
#include "util/thread_pool.h"

namespace elasticctr::metric {
namespace {

constexpr uint32_t kMagic = 0x53424345;  // "ECBS"
constexpr uint32_t kFormat = 1;
constexpr size_t kHead = 4 + 4 + 4 + 8 + 8;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// How often a sample counts, for a uniform 32-bit number. The probability beyond the last threshold is 8e-10.
uint8_t PoissonOf(uint32_t uniform) {
  // 2^32 × the probability of at most 0, 1, … under Poisson(1).
  static constexpr uint32_t kThresholds[] = {1580030169u, 3160060337u, 3950075422u, 4213413783u,
                                             4279248374u, 4292415292u, 4294609778u, 4294923276u,
                                             4294962463u, 4294966817u, 4294967253u, 4294967292u};
  uint8_t count = 0;
  for (uint32_t threshold : kThresholds) {
    if (uniform < threshold) break;
    ++count;
  }
  return count;
}

void DrawCounts(uint64_t seed, size_t replicate, std::vector<uint8_t>* counts) {
  const uint64_t base = Mix64(Mix64(seed + 0x9E3779B97F4A7C15ULL) + replicate);
  for (size_t i = 0; i < counts->size(); i += 2) {
    const uint64_t random = Mix64(base + i * 0x9E3779B97F4A7C15ULL);
    (*counts)[i] = PoissonOf(static_cast<uint32_t>(random));
    if (i + 1 < counts->size()) (*counts)[i + 1] = PoissonOf(static_cast<uint32_t>(random >> 32));
  }
}

float LogitOf(uint32_t order) { return std::bit_cast<float>(order & 0x80000000u ? order & 0x7fffffffu : ~order); }

double LossOf(float logit, float label) {
  const double x = std::clamp(static_cast<double>(logit), -kMaxLogit, kMaxLogit);
  return std::max(x, 0.0) - x * label + std::log1p(std::exp(-std::abs(x)));
}

}  // namespace

// Samples in a form from which many replicates are computed.
class Bootstrap::Drawing {
 public:
  // REQUIRES: samples are sorted.
  Drawing(const std::vector<Sample>& samples, bool is_paired) : samples_(samples) {
    for (const Sample& sample : samples) {
      splits_.push_back(SplitWeight(sample.label, sample.weight));
      losses_.push_back(LossOf(LogitOf(sample.order), sample.label));
    }
    if (!is_paired) return;
    places_.resize(samples.size());
    std::iota(places_.begin(), places_.end(), 0u);
    std::stable_sort(places_.begin(), places_.end(),
                     [&](uint32_t a, uint32_t b) { return samples[a].other_order < samples[b].other_order; });
    for (const Sample& sample : samples) other_losses_.push_back(LossOf(LogitOf(sample.other_order), sample.label));
  }

  Replicate Compute(const std::vector<uint8_t>& counts) const {
    PairCounter pairs;
    for (size_t i = 0; i < counts.size(); ++i) {
      pairs.AddIntegers(samples_[i].order, counts[i] * splits_[i].positive, counts[i] * splits_[i].negative);
    }
    const double auc = pairs.Auc();
    if (places_.empty()) return {auc, MeanOf(losses_, counts), kNan, kNan};
    PairCounter others;
    for (const uint32_t i : places_) {
      others.AddIntegers(samples_[i].other_order, counts[i] * splits_[i].positive, counts[i] * splits_[i].negative);
    }
    return {auc, MeanOf(losses_, counts), others.Auc(), MeanOf(other_losses_, counts)};
  }

 private:
  double MeanOf(const std::vector<double>& losses, const std::vector<uint8_t>& counts) const {
    double sum = 0.0;
    double weight = 0.0;
    for (size_t i = 0; i < counts.size(); ++i) {
      const double w = counts[i] * static_cast<double>(splits_[i].positive + splits_[i].negative);
      sum += w * losses[i];
      weight += w;
    }
    return weight > 0.0 ? sum / weight : kNan;
  }

  const std::vector<Sample>& samples_;
  std::vector<SplitOfWeight> splits_;
  std::vector<double> losses_;
  std::vector<double> other_losses_;
  std::vector<uint32_t> places_;  // samples by rising score of the second model
};

void Bootstrap::Update(const float* logits, const float* others, const float* labels, const float* weights, size_t n) {
  if ((others != nullptr) != is_paired_) {
    throw Error(Code::kFailedPrecondition, is_paired_ ? "a paired bootstrap needs the second model's scores too"
                                                      : "this bootstrap is of one model; make a paired one for two");
  }
  std::scoped_lock lock(mutex_);
  for (size_t i = 0; i < n; ++i) {
    const float weight = weights ? weights[i] : 1.0f;
    if (!IsValid(logits[i], labels[i], weight) || (others && others[i] != others[i])) {
      ++invalid_;
      continue;
    }
    // + 0 turns -0 into 0: equal numbers are saved as equal bytes.
    samples_.push_back({OrderedBits(logits[i]), others ? OrderedBits(others[i]) : 0, labels[i] + 0.0f, weight + 0.0f});
  }
  if (samples_.size() > std::numeric_limits<uint32_t>::max()) {
    throw Error(Code::kFailedPrecondition,
                "a bootstrap holds at most 4,294,967,295 samples; evaluate a part of the data");
  }
  is_sorted_ = samples_.empty();
}

void Bootstrap::Merge(const Bootstrap& other) {
  std::vector<Sample> samples;
  uint64_t invalid;
  {
    std::scoped_lock lock(other.mutex_);
    if (other.is_paired_ != is_paired_) {
      throw Error(Code::kFailedPrecondition, "a bootstrap of one model cannot be merged with one of two");
    }
    samples = other.samples_;
    invalid = other.invalid_;
  }
  std::scoped_lock lock(mutex_);
  samples_.insert(samples_.end(), samples.begin(), samples.end());
  invalid_ += invalid;
  is_sorted_ = samples_.empty();
}

void Bootstrap::Sort() const {
  if (is_sorted_) return;
  std::sort(samples_.begin(), samples_.end(), [](const Sample& a, const Sample& b) {
    return std::tie(a.order, a.other_order, a.label, a.weight) < std::tie(b.order, b.other_order, b.label, b.weight);
  });
  is_sorted_ = true;
}

Replicate Bootstrap::Estimate() const {
  std::scoped_lock lock(mutex_);
  Sort();
  return Drawing(samples_, is_paired_).Compute(std::vector<uint8_t>(samples_.size(), 1));
}

std::vector<Replicate> Bootstrap::Draw(size_t replicates, uint64_t seed) const {
  std::scoped_lock lock(mutex_);
  Sort();
  const Drawing drawing(samples_, is_paired_);
  std::vector<Replicate> results(replicates);
  ThreadPool::Default().Run(replicates, [&](size_t r) {
    std::vector<uint8_t> counts(samples_.size());
    DrawCounts(seed, r, &counts);
    results[r] = drawing.Compute(counts);
  });
  return results;
}

size_t Bootstrap::samples() const {
  std::scoped_lock lock(mutex_);
  return samples_.size();
}

uint64_t Bootstrap::invalid() const {
  std::scoped_lock lock(mutex_);
  return invalid_;
}

std::string Bootstrap::State() const {
  std::scoped_lock lock(mutex_);
  Sort();
  std::string out;
  out.reserve(kHead + samples_.size() * sizeof(Sample) + 4);
  Append32(&out, kMagic);
  Append32(&out, kFormat);
  Append32(&out, is_paired_ ? 1 : 0);
  Append64(&out, invalid_);
  Append64(&out, samples_.size());
  out.append(reinterpret_cast<const char*>(samples_.data()), samples_.size() * sizeof(Sample));
  Append32(&out, Crc32c(0, out.data(), out.size()));
  return out;
}

void Bootstrap::Restore(std::string_view state) {
  const auto check = [](bool ok, const char* what) {
    if (!ok) {
      throw Error(Code::kCorruption, std::string("saved bootstrap samples are damaged (") + what +
                                         "); use an older checkpoint or start the metrics anew");
    }
  };
  const char* p = state.data();
  check(state.size() >= kHead + 4, "too short");
  check(DecodeFixed32(p) == kMagic, "they do not start like bootstrap samples");
  check(DecodeFixed32(p + state.size() - 4) == Crc32c(0, p, state.size() - 4), "checksum");
  check(DecodeFixed32(p + 4) == kFormat, "unknown format version");
  const size_t bytes = state.size() - kHead - 4;
  check(bytes % sizeof(Sample) == 0 && bytes / sizeof(Sample) == DecodeFixed64(p + 20), "length");
  const uint32_t is_paired = DecodeFixed32(p + 8);
  check(is_paired <= 1, "neither paired nor not");
  if ((is_paired == 1) != is_paired_) {
    throw Error(Code::kFailedPrecondition,
                "a saved bootstrap of one model cannot be taken up by one of two, or the reverse");
  }
  std::vector<Sample> samples(bytes / sizeof(Sample));
  if (bytes > 0) std::memcpy(samples.data(), p + kHead, bytes);
  for (const Sample& sample : samples) {
    check(IsValid(LogitOf(sample.order), sample.label, sample.weight), "score, label or weight");
    check(!is_paired_ || LogitOf(sample.other_order) == LogitOf(sample.other_order), "second score");
  }
  std::scoped_lock lock(mutex_);
  samples_ = std::move(samples);
  invalid_ = DecodeFixed64(p + 12);
  is_sorted_ = false;
}

}  // namespace elasticctr::metric
