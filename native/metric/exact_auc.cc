#include "metric/exact_auc.h"

#include <array>
#include <vector>

#include "metric/pairs.h"
#include "metric/score_bucket.h"

namespace elasticctr::metric {
namespace {

struct Ranked {
  uint32_t order;
  float label;
  float weight;
};

// Least significant digit first, 11 bits at a time: three stable passes sort 32 bits.
void SortByOrder(std::vector<Ranked>* samples) {
  std::vector<Ranked> other(samples->size());
  for (int shift : {0, 11, 22}) {
    std::array<size_t, 2048> start{};
    for (const Ranked& sample : *samples) ++start[sample.order >> shift & 2047];
    size_t sum = 0;
    for (size_t& count : start) {
      const size_t here = count;
      count = sum;
      sum += here;
    }
    for (const Ranked& sample : *samples) other[start[sample.order >> shift & 2047]++] = sample;
    samples->swap(other);
  }
}

}  // namespace

double ExactAuc(const float* scores, const float* labels, const float* weights, size_t n, uint64_t* invalid) {
  std::vector<Ranked> samples;
  samples.reserve(n);
  for (size_t i = 0; i < n; ++i) {
    const float weight = weights ? weights[i] : 1.0f;
    if (IsValid(scores[i], labels[i], weight)) samples.push_back({OrderedBits(scores[i]), labels[i], weight});
  }
  *invalid = n - samples.size();
  SortByOrder(&samples);
  PairCounter pairs;
  for (const Ranked& sample : samples) pairs.Add(sample.order, sample.label, sample.weight);
  return pairs.Auc();
}

}  // namespace elasticctr::metric
