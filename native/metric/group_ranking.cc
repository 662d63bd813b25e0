// Per-group metrics of GroupAuc: the ranking quality of the first k, and each group's own AUC with a deviation.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "metric/group_auc.h"
#include "metric/pairs.h"

namespace elasticctr::metric {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Prefix sums of the discounts, extended on demand.
class Discounts {
 public:
  explicit Discounts(size_t k) : k_(k) {}
  // The sum of places [0, count); places from k on count 0.
  double Until(size_t count) {
    count = std::min(count, k_);
    while (sums_.size() <= count)
      sums_.push_back(sums_.back() + 1.0 / std::log2(static_cast<double>(sums_.size()) + 1));
    return sums_[count];
  }

 private:
  size_t k_;
  std::vector<double> sums_ = {0.0};
};

// One class of one group: its weight, its number of samples, and the spread of its samples' wins.
struct Side {
  uint64_t weight = 0;
  uint64_t samples = 0;
  double squares = 0.0;

  void Count(uint64_t amount) {
    weight += amount;
    samples += amount > 0 ? 1 : 0;
  }
  void AddSquare(uint64_t amount, double deviation) {
    const double w = static_cast<double>(amount) * deviation;
    squares += w * w;
  }
  double Variance() const {
    const double n = static_cast<double>(samples);
    const double w = static_cast<double>(weight);
    return squares / (w * w) * n / (n - 1.0);
  }
};

// The deviation of an AUC after DeLong, from samples by rising score: for each sample, the share of the other class
// that it wins against; the deviation follows from the spread of that share within either class.
template <typename Iterator>
double DeviationOf(double auc, Iterator begin, Iterator end, Side positive, Side negative) {
  uint64_t positive_below = 0;
  uint64_t negative_below = 0;
  for (Iterator i = begin; i != end;) {
    Iterator last = i;
    uint64_t tied_positive = 0;
    uint64_t tied_negative = 0;
    for (; last != end && last->order == i->order; ++last) {
      const auto [p, n] = SplitWeight(last->label, last->weight);
      tied_positive += p;
      tied_negative += n;
    }
    const double won = (static_cast<double>(negative_below) + 0.5 * static_cast<double>(tied_negative)) /
                       static_cast<double>(negative.weight);
    const double beaten = 1.0 - (static_cast<double>(positive_below) + 0.5 * static_cast<double>(tied_positive)) /
                                    static_cast<double>(positive.weight);
    for (; i != last; ++i) {
      const auto [p, n] = SplitWeight(i->label, i->weight);
      positive.AddSquare(p, won - auc);
      negative.AddSquare(n, beaten - auc);
    }
    positive_below += tied_positive;
    negative_below += tied_negative;
  }
  return std::sqrt(positive.Variance() + negative.Variance());
}

}  // namespace

GroupedRanking GroupAuc::Rank(size_t k) const {
  std::scoped_lock lock(mutex_);
  Sort();
  GroupedRanking result{kNan, kNan, 0, 0};
  double ndcg_sum = 0.0;
  double recall_sum = 0.0;
  Discounts discounts(k);
  std::vector<double> gains;
  for (size_t first = 0; first < samples_.size();) {
    const size_t end = EndOfGroup(first);
    gains.clear();
    double dcg = 0.0;
    double found = 0.0;
    double all = 0.0;
    for (size_t i = end; i > first;) {
      const uint32_t order = samples_[i - 1].order;
      const size_t begin = gains.size();
      double tied = 0.0;
      for (; i > first && samples_[i - 1].order == order; --i) {
        if (samples_[i - 1].weight == 0.0f) continue;
        gains.push_back(static_cast<double>(samples_[i - 1].label) * samples_[i - 1].weight);
        tied += gains.back();
      }
      if (gains.size() == begin) continue;
      const double mean = tied / static_cast<double>(gains.size() - begin);
      dcg += mean * (discounts.Until(gains.size()) - discounts.Until(begin));
      found += mean * static_cast<double>(std::min(gains.size(), k) - std::min(begin, k));
      all += tied;
    }
    first = end;
    if (all == 0.0) {
      ++result.skipped;
      continue;
    }
    std::sort(gains.begin(), gains.end(), std::greater<>());
    double ideal = 0.0;
    for (size_t place = 0; place < std::min(gains.size(), k); ++place) {
      ideal += gains[place] * (discounts.Until(place + 1) - discounts.Until(place));
    }
    ++result.groups;
    ndcg_sum += dcg / ideal;
    recall_sum += found / all;
  }
  if (result.groups > 0) {
    result.ndcg = ndcg_sum / static_cast<double>(result.groups);
    result.recall = recall_sum / static_cast<double>(result.groups);
  }
  return result;
}

std::vector<GroupRow> GroupAuc::Rows(uint64_t min_samples) const {
  std::scoped_lock lock(mutex_);
  Sort();
  std::vector<GroupRow> rows;
  for (size_t first = 0; first < samples_.size();) {
    const size_t begin = first;
    const size_t end = EndOfGroup(begin);
    first = end;
    if (end - begin < min_samples) continue;
    PairCounter pairs;
    Side positive;
    Side negative;
    for (size_t i = begin; i < end; ++i) {
      const auto [p, n] = SplitWeight(samples_[i].label, samples_[i].weight);
      pairs.AddIntegers(samples_[i].order, p, n);
      positive.Count(p);
      negative.Count(n);
    }
    const double auc = pairs.Auc();
    double deviation = kNan;
    if (positive.samples > 1 && negative.samples > 1) {
      deviation = DeviationOf(auc, samples_.begin() + begin, samples_.begin() + end, positive, negative);
    }
    rows.push_back({static_cast<uint64_t>(samples_[begin].group_high) << 32 | samples_[begin].group_low, end - begin,
                    static_cast<double>(positive.weight + negative.weight) / kWeightOne,
                    static_cast<double>(positive.weight) / kWeightOne, auc, deviation});
  }
  return rows;
}

}  // namespace elasticctr::metric
