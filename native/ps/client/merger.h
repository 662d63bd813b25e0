// Merges summed gradients of several batches into one: the union of their feasigns, shows and clicks added, gradients
// averaged by the samples of each batch (as if it had been one batch) or added. Feasigns are ordered by first
// occurrence.
//
// Not synchronised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ps/client/client.h"

namespace elasticctr::ps {

class Merger {
 public:
  // `dims`: weights of a row, by table. `is_mean`: averaged, else added.
  Merger(std::vector<uint32_t> dims, size_t dense_floats, bool is_mean);

  // Adds one batch; `dense` is empty or complete. False: something in it is not finite, and none of it was added; the
  // batch counts as seen.
  bool Add(std::span<const GradientTable> tables, std::span<const float> dense, uint32_t weight);
  // As Add, but sums the gradients per feasign first.
  bool AddBatch(std::span<const Lookup* const> lookups, std::span<const Layout* const> layouts,
                std::span<const std::vector<Target>> gradients, const PushSamples& samples,
                std::span<const float> dense, uint32_t weight);

  size_t batches() const { return batches_; }  // seen since Clear
  uint32_t weight() const { return weight_; }  // of those added
  // The merged gradients; valid until the next Add or Clear.
  std::vector<GradientTable> Tables();
  std::span<const float> Dense();
  void Clear();

 private:
  struct Rows {
    uint32_t dim = 0;
    std::vector<uint32_t> places;  // open addressing; number of the feasign plus one, 0: free
    std::vector<uint64_t> feasigns;
    std::vector<float> shows, clicks, gradients;
    std::vector<uint64_t> masks;

    uint32_t Find(uint64_t feasign);
    void Grow();
  };

  void AddTable(const GradientTable& table, float share, Rows* rows);
  void Average();

  const bool is_mean_;
  std::vector<Rows> tables_;
  std::vector<float> dense_;
  bool has_dense_ = false;
  bool has_masks_ = false;
  bool is_averaged_ = false;
  size_t batches_ = 0;
  uint32_t weight_ = 0;
  uint32_t unit_ = 0;  // weight of the first batch: its gradients are not scaled
};

}  // namespace elasticctr::ps
