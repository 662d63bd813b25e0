#include "serve/engine/models.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "util/hash.h"
#include "util/status.h"

namespace elasticctr::serve {
namespace {

constexpr size_t kOtherNames = 32;  // names for all dense slots, weights and the like

// [0, 1), by the upper 53 bits.
double Fraction(uint64_t hash) { return static_cast<double>(hash >> 11) * 0x1p-53; }

}  // namespace

Models::Models(std::vector<Model> models) : models_(std::move(models)) {
  std::set<std::string_view> names;
  for (Model& model : models_) {
    if (!names.insert(model.name).second) throw Error(Code::kConfig, "model '" + model.name + "' is there twice");
    std::set<std::string_view> variants;
    for (Variant& variant : model.variants) {
      const std::string what = "variant '" + variant.name + "' of model '" + model.name + "' ";
      if (!variants.insert(variant.name).second) throw Error(Code::kConfig, what + "is there twice");
      if (!std::isfinite(variant.weight) || variant.weight < 0) {
        throw Error(Code::kConfig, what + "has a weight that is not a number of 0 or more");
      }
      if (variant.version == nullptr) throw Error(Code::kConfig, what + "has no version");
      const Plan& plan = variant.version->plan();
      const size_t slots = plan.spec.sparse.size() + plan.spec.dense.size() + plan.paddle_feeds.size();
      most_names_ = std::max(most_names_, 2 * (slots + plan.labels.size()) + kOtherNames);
      if (variant.stats == nullptr) variant.stats = std::make_shared<VariantStats>();
    }
  }
}

const Model& Models::Find(std::string_view name) const {
  if (name.empty() && models_.size() == 1) return models_[0];
  std::string names;
  for (const Model& model : models_) {
    if (!name.empty() && model.name == name) return model;
    names += (names.empty() ? "" : ", ") + model.name;
  }
  // Until the models are known, a name cannot be reported as unknown.
  if (models_.empty()) throw Error(Code::kUnavailable, "no model is served yet; ask another server, or this one later");
  if (name.empty()) throw Error(Code::kNotFound, "the request names no model; there is " + names);
  throw Error(Code::kNotFound, "no model '" + std::string(name.substr(0, 64)) + "'; there is " + names);
}

Error Models::NoVersion(const Model& model) {
  return {Code::kUnavailable, "model '" + model.name + "' has no version yet; ask another server, or this one later"};
}

const Model* Models::FindPaddleDefault() const {
  for (const Model& model : models_) {
    if (model.paddle_default) return &model;
  }
  return nullptr;
}

const Variant& Models::Pick(const Model& model, const std::string* sticky, double random) {
  double sum = 0;
  const Variant* last = nullptr;
  for (const Variant& variant : model.variants) {
    if (variant.is_shadow || variant.weight <= 0) continue;
    sum += variant.weight;
    last = &variant;
  }
  if (last == nullptr) throw NoVersion(model);
  const double at =
      sum * (sticky != nullptr ? Fraction(Xxh64(sticky->data(), sticky->size(), model.sticky_seed)) : random);
  double below = 0;
  for (const Variant& variant : model.variants) {
    if (variant.is_shadow || variant.weight <= 0) continue;
    below += variant.weight;
    if (at < below) return variant;
  }
  return *last;
}

}  // namespace elasticctr::serve
