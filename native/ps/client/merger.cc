#include "ps/client/merger.h"

#include <algorithm>

#include "ps/client/sums.h"
#include "table/remote.h"
#include "util/hash.h"
#include "util/status.h"

namespace elasticctr::ps {

Merger::Merger(std::vector<uint32_t> dims, size_t dense_floats, bool is_mean)
    : is_mean_(is_mean), tables_(dims.size()), dense_(dense_floats) {
  for (size_t t = 0; t < dims.size(); ++t) tables_[t].dim = dims[t];
}

void Merger::Rows::Grow() {
  places.assign(std::max<size_t>(1024, places.size() * 4), 0);
  const size_t mask = places.size() - 1;
  for (uint32_t i = 0; i < feasigns.size(); ++i) {
    size_t place = Mix64(feasigns[i]) & mask;
    while (places[place] != 0) place = (place + 1) & mask;
    places[place] = i + 1;
  }
}

// The index of a feasign; a new one starts with zero sums.
uint32_t Merger::Rows::Find(uint64_t feasign) {
  if (feasigns.size() * 2 >= places.size()) Grow();
  const size_t mask = places.size() - 1;
  size_t place = Mix64(feasign) & mask;
  for (; places[place] != 0; place = (place + 1) & mask) {
    if (feasigns[places[place] - 1] == feasign) return places[place] - 1;
  }
  feasigns.push_back(feasign);
  places[place] = static_cast<uint32_t>(feasigns.size());
  shows.push_back(0.0f);
  clicks.push_back(0.0f);
  masks.push_back(0);
  gradients.resize(gradients.size() + dim);
  return places[place] - 1;
}

void Merger::AddTable(const GradientTable& table, float share, Rows* rows) {
  const size_t dim = rows->dim;
  for (size_t i = 0; i < table.feasigns.size(); ++i) {
    const uint32_t number = rows->Find(table.feasigns[i]);
    rows->shows[number] += table.shows[i];
    rows->clicks[number] += table.clicks[i];
    rows->masks[number] |= table.masks.empty() ? ~uint64_t{0} : table.masks[i];
    float* const sum = rows->gradients.data() + number * dim;
    const float* const gradient = table.gradients.data() + i * dim;
    for (size_t j = 0; j < dim; ++j) sum[j] += share * gradient[j];
  }
  has_masks_ |= !table.masks.empty();
}

bool Merger::Add(std::span<const GradientTable> tables, std::span<const float> dense, uint32_t weight) {
  if (is_averaged_) throw Error(Code::kFailedPrecondition, "a merger was read from; clear it before adding more");
  if (tables.size() != tables_.size() || (!dense.empty() && dense.size() != dense_.size())) {
    throw Error(Code::kFailedPrecondition, "a batch of other tables or another dense vector than the merger's");
  }
  for (size_t t = 0; t < tables.size(); ++t) CheckTable(tables[t], tables_[t].dim);
  ++batches_;
  if (!IsFinite(tables) || !AllFinite(dense.data(), dense.size())) return false;
  if (unit_ == 0) unit_ = std::max(weight, 1u);
  const float share = is_mean_ ? static_cast<float>(weight) / static_cast<float>(unit_) : 1.0f;
  for (size_t t = 0; t < tables.size(); ++t) AddTable(tables[t], share, &tables_[t]);
  for (size_t j = 0; j < dense.size(); ++j) dense_[j] += share * dense[j];
  has_dense_ |= !dense.empty();
  weight_ += weight;
  return true;
}

bool Merger::AddBatch(std::span<const Lookup* const> lookups, std::span<const Layout* const> layouts,
                      std::span<const std::vector<Target>> gradients, const PushSamples& samples,
                      std::span<const float> dense, uint32_t weight) {
  std::vector<uint32_t> dims;
  for (const Rows& rows : tables_) dims.push_back(rows.dim);
  bool is_finite = true;
  return Add(SumAll(lookups, layouts, gradients, samples, dims, &is_finite), dense, weight);
}

void Merger::Average() {
  if (is_averaged_) return;
  is_averaged_ = true;
  if (!is_mean_ || weight_ == unit_ || weight_ == 0) return;
  const float share = static_cast<float>(unit_) / static_cast<float>(weight_);
  for (Rows& rows : tables_) {
    for (float& value : rows.gradients) value *= share;
  }
  for (float& value : dense_) value *= share;
}

std::vector<GradientTable> Merger::Tables() {
  Average();
  std::vector<GradientTable> views;
  for (const Rows& rows : tables_) {
    const std::span<const uint64_t> masks(rows.masks);
    views.push_back({rows.feasigns, rows.shows, rows.clicks, has_masks_ ? masks : masks.first(0), rows.gradients});
  }
  return views;
}

std::span<const float> Merger::Dense() {
  Average();
  return has_dense_ ? std::span<const float>(dense_) : std::span<const float>();
}

void Merger::Clear() {
  for (Rows& rows : tables_) {
    std::fill(rows.places.begin(), rows.places.end(), 0);
    rows.feasigns.clear();
    rows.shows.clear();
    rows.clicks.clear();
    rows.masks.clear();
    rows.gradients.clear();
  }
  std::fill(dense_.begin(), dense_.end(), 0.0f);
  has_dense_ = has_masks_ = is_averaged_ = false;
  batches_ = 0;
  weight_ = unit_ = 0;
}

}  // namespace elasticctr::ps
