// The models served at one moment, with their variants and versions. Immutable; the engine swaps one for the next
// between two requests, and a request is answered by the one it was routed by.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "serve/engine/stats.h"
#include "serve/version/version.h"
#include "util/status.h"

namespace elasticctr::serve {

struct Variant {
  std::string name;        // "live" when there is only one
  double weight = 1;       // its share among the variants that answer
  bool is_shadow = false;  // scored in addition, with probability `weight`; its scores are never returned
  std::shared_ptr<const ServedVersion> version;
  std::shared_ptr<VariantStats> stats;
};

struct Model {
  std::string name;
  std::vector<Variant> variants;  // empty: no version yet
  std::string sticky_field;       // empty: a variant is drawn for each request
  uint64_t sticky_seed = 0;
  bool paddle_default = false;  // answers Paddle Serving calls that name no model
};

class Models {
 public:
  explicit Models(std::vector<Model> models);
  const std::vector<Model>& all() const { return models_; }
  // Empty name: the only model, if there is only one. Throws NotFound naming the existing ones, Unavailable before
  // there is any.
  const Model& Find(std::string_view name) const;
  // The error for a request to a model without a version.
  static Error NoVersion(const Model& model);
  // The model for Paddle Serving calls that name none; null: there is none.
  const Model* FindPaddleDefault() const;
  // The most names a request may have before one of them must be unknown to every model: each slot's own, its lengths'
  // and some for all of them.
  size_t most_names() const { return most_names_; }
  // Picks by weight: by the hash of the sticky text if there is one, else by `random` in [0, 1). Throws Unavailable if
  // no variant answers.
  static const Variant& Pick(const Model& model, const std::string* sticky, double random);

 private:
  std::vector<Model> models_;
  size_t most_names_ = 0;
};

}  // namespace elasticctr::serve
