#include "serve/paddle/feed.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "serve/http/status.h"

namespace elasticctr::serve::paddle {
namespace {

constexpr std::string_view kDenseNames[] = {"dense_input", "dense_feature", "dense_features", "dense"};

// The form of a positional name: the text before and after the number, and the number of the first slot.
struct Form {
  std::string_view before, after;
  uint32_t first;
};
constexpr Form kForms[] = {
    {"C", "", 1}, {"", "", 1}, {"embedding_", ".tmp_0", 0}, {"sequence_pool_", ".tmp_0", 0}, {"sparse_", "", 0}};

enum class Goes : uint8_t { kSparse, kDense, kAllDense, kNowhere };

struct Target {
  Goes goes;
  uint32_t slot = 0;
};

struct Feed {
  const Tensor* tensor;
  Target target;
  size_t rows;
  size_t width;  // without lod: values of a row
};

[[noreturn]] void Fail(const Tensor& tensor, const std::string& what) {
  throw Error(Code::kData, "tensor " + NameOf(tensor) + " " + what);
}

std::optional<uint32_t> NumberIn(std::string_view name, const Form& form) {
  if (!name.starts_with(form.before) || !name.ends_with(form.after)) return std::nullopt;
  if (name.size() <= form.before.size() + form.after.size()) return std::nullopt;
  name = name.substr(form.before.size(), name.size() - form.before.size() - form.after.size());
  uint32_t number;
  auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return number;
}

std::optional<Target> FindName(const Plan& plan, std::string_view name) {
  if (name.empty()) return std::nullopt;
  // REQUIRES: the settings map a name to a slot or to a name for all dense ones.
  if (auto it = plan.paddle_feeds.find(std::string(name)); it != plan.paddle_feeds.end()) name = it->second;
  if (auto it = plan.names.find(std::string(name)); it != plan.names.end()) {
    return Target{it->second.is_dense ? Goes::kDense : Goes::kSparse, it->second.index};
  }
  if (name == "label" || std::find(plan.labels.begin(), plan.labels.end(), name) != plan.labels.end()) {
    return Target{Goes::kNowhere};
  }
  if (!plan.spec.dense.empty() &&
      std::find(std::begin(kDenseNames), std::end(kDenseNames), name) != std::end(kDenseNames)) {
    return Target{Goes::kAllDense};
  }
  const std::vector<SparseSpec>& slots = plan.spec.sparse;
  for (const Form& form : kForms) {
    std::optional<uint32_t> number = NumberIn(name, form);
    if (!number || *number < form.first || *number - form.first >= slots.size()) continue;
    auto has_form = [&](const SparseSpec& slot) { return NumberIn(slot.name, form).has_value(); };
    if (std::none_of(slots.begin(), slots.end(), has_form)) return Target{Goes::kSparse, *number - form.first};
  }
  return std::nullopt;
}

Target Find(const Plan& plan, const Tensor& tensor) {
  std::optional<Target> target = FindName(plan, tensor.name);
  if (!target) target = FindName(plan, tensor.alias);
  if (target) return *target;
  std::string known;
  for (const SparseSpec& slot : plan.spec.sparse) {
    if (known.size() > 200) {
      known += ", …";
      break;
    }
    known += (known.empty() ? "" : ", ") + slot.name;
  }
  if (!plan.spec.dense.empty()) known += (known.empty() ? "" : ", ") + std::string("dense_input");
  Fail(tensor, "is no slot of the model; it has " + known);
}

Feed Measure(const Tensor& tensor, const Target& target) {
  size_t count = tensor.count();
  if (!tensor.lod.empty()) {
    bool is_sound = tensor.lod.front() == 0 && std::is_sorted(tensor.lod.begin(), tensor.lod.end()) &&
                    static_cast<size_t>(tensor.lod.back()) == count;
    if (!is_sound) {
      Fail(tensor, "has a lod that is no list of offsets from 0 to its " + std::to_string(count) + " values");
    }
    return {&tensor, target, tensor.lod.size() - 1, 0};
  }
  if (tensor.shape.empty()) Fail(tensor, "has neither shape nor lod; the shape is [samples, values of each]");
  uint64_t product = 1;
  for (int32_t n : tensor.shape) {
    if (n < 0) Fail(tensor, "has a shape with a negative number");
    product = std::min<uint64_t>(product * static_cast<uint32_t>(n), uint64_t{1} << 31);
  }
  if (product != count) {
    Fail(tensor, "has " + std::to_string(count) + " values and a shape of " + std::to_string(product));
  }
  auto rows = static_cast<size_t>(tensor.shape.front());
  return {&tensor, target, rows, rows == 0 ? 0 : count / rows};
}

struct Range {
  size_t first, last;
};

Range RowOf(const Feed& feed, size_t row) {
  if (feed.tensor->lod.empty()) return {row * feed.width, (row + 1) * feed.width};
  return {static_cast<size_t>(feed.tensor->lod[row]), static_cast<size_t>(feed.tensor->lod[row + 1])};
}

void FillSparse(const Feed& feed, size_t row, Samples* samples) {
  const Tensor& tensor = *feed.tensor;
  auto [first, last] = RowOf(feed, row);
  uint32_t slot = feed.target.slot;
  if (!tensor.texts.empty()) {
    for (size_t i = first; i < last; ++i) samples->AddText(slot, tensor.texts[i]);
  } else {
    for (size_t i = first; i < last; ++i) samples->AddFeasign(slot, tensor.ints[i]);
  }
}

void FillDense(const Feed& feed, size_t row, Samples* samples) {
  const Tensor& tensor = *feed.tensor;
  const std::vector<DenseSpec>& dense = samples->plan().spec.dense;
  bool is_all = feed.target.goes == Goes::kAllDense;
  size_t wanted = is_all ? samples->plan().spec.dense_dim() : dense[feed.target.slot].dim;
  auto [at, last] = RowOf(feed, row);
  if (last - at != wanted) {
    Fail(tensor, "has " + std::to_string(last - at) + " values in row " + std::to_string(row) + ", expected " +
                     std::to_string(wanted));
  }
  uint32_t slot = is_all ? 0 : feed.target.slot;
  uint32_t end = is_all ? static_cast<uint32_t>(dense.size()) : slot + 1;
  for (; slot < end; ++slot) {
    for (uint32_t i = 0; i < dense[slot].dim; ++i, ++at) {
      bool is_float = !tensor.floats.empty();
      samples->SetDense(slot, i,
                        is_float ? tensor.floats[at] : static_cast<float>(static_cast<int64_t>(tensor.ints[at])));
    }
  }
}

// Marks the target of a feed; a duplicate is an error.
void Mark(const Tensor& tensor, const Plan& plan, const Target& target, std::vector<bool>* sparse,
          std::vector<bool>* dense) {
  auto mark = [&](std::vector<bool>* given, size_t slot, const std::string& name) {
    if ((*given)[slot]) Fail(tensor, "feeds slot '" + name + "', which another tensor feeds already");
    (*given)[slot] = true;
  };
  if (target.goes == Goes::kSparse) mark(sparse, target.slot, plan.spec.sparse[target.slot].name);
  if (target.goes == Goes::kDense) mark(dense, target.slot, plan.spec.dense[target.slot].name);
  if (target.goes == Goes::kAllDense) {
    for (size_t i = 0; i < dense->size(); ++i) mark(dense, i, plan.spec.dense[i].name);
  }
}

void CheckGiven(const Plan& plan, const std::vector<bool>& sparse, const std::vector<bool>& dense) {
  for (size_t i = 0; i < sparse.size(); ++i) {
    if (sparse[i] || plan.sparse[i].table == SparsePlan::kUnused) continue;
    throw Error(Code::kData, "no tensor feeds slot '" + plan.spec.sparse[i].name +
                                 "'; send one, with empty rows where there is no value");
  }
  for (size_t i = 0; i < dense.size(); ++i) {
    if (!dense[i]) throw Error(Code::kData, "no tensor feeds dense slot '" + plan.spec.dense[i].name + "'");
  }
}

}  // namespace

void Fill(const TensorRequest& request, const Limits& limits, Samples* samples) {
  const Plan& plan = samples->plan();
  std::vector<bool> sparse(plan.spec.sparse.size()), dense(plan.spec.dense.size());
  std::vector<Feed> feeds;
  for (const Tensor& tensor : request.tensors) {
    Target target = Find(plan, tensor);
    if (target.goes == Goes::kNowhere) continue;
    Mark(tensor, plan, target, &sparse, &dense);
    if (target.goes == Goes::kSparse && !tensor.floats.empty()) Fail(tensor, "has numbers with a point; ids are whole");
    if (target.goes != Goes::kSparse && !tensor.texts.empty()) Fail(tensor, "has text where numbers are expected");
    feeds.push_back(Measure(tensor, target));
    if (feeds.back().rows != feeds.front().rows) {
      Fail(tensor, "has " + std::to_string(feeds.back().rows) + " rows, tensor " + NameOf(*feeds.front().tensor) +
                       " has " + std::to_string(feeds.front().rows) + "; all need one per sample");
    }
  }
  CheckGiven(plan, sparse, dense);
  size_t rows = feeds.empty() ? 0 : feeds.front().rows;
  if (rows == 0) throw Error(Code::kData, "the tensors have no rows; send at least one sample");
  if (rows > limits.samples) {
    throw TooLarge(std::to_string(rows) + " samples; the limit is " + std::to_string(limits.samples));
  }
  MakeOutputs(request.fetch, plan.labels, nullptr, 0);
  samples->BeginRequest();
  for (size_t row = 0; row < rows; ++row) {
    samples->BeginSample();
    for (const Feed& feed : feeds) {
      if (feed.target.goes == Goes::kSparse) {
        FillSparse(feed, row, samples);
      } else {
        FillDense(feed, row, samples);
      }
    }
  }
  samples->EndRequest();
}

std::vector<TensorAnswer::Output> MakeOutputs(const std::vector<std::string_view>& fetch,
                                              const std::vector<std::string>& labels, const float* scores,
                                              size_t count) {
  static constexpr std::string_view kProb = "prob";
  std::vector<std::string_view> names = fetch;
  if (names.empty() && labels.size() == 1) names.push_back(kProb);
  if (names.empty()) names.assign(labels.begin(), labels.end());
  std::vector<TensorAnswer::Output> outputs;
  for (size_t i = 0; i < names.size(); ++i) {
    auto at = static_cast<size_t>(std::find(labels.begin(), labels.end(), names[i]) - labels.begin());
    bool is_all = at == labels.size() && names.size() == 1 && labels.size() > 1;
    if (at == labels.size() && names.size() == labels.size()) at = i;
    if (at == labels.size() && !is_all) {
      std::string known;
      for (const std::string& label : labels) known += (known.empty() ? "" : ", ") + label;
      throw Error(Code::kData, "cannot tell which score '" + std::string(names[i].substr(0, 64)) +
                                   "' is; the model gives " + known + ": fetch these, or one name for each");
    }
    bool is_pair = !is_all && (names[i] == kProb || names[i].starts_with("softmax_"));
    TensorAnswer::Output& output = outputs.emplace_back();
    output.name = names[i];
    output.rows = count;
    output.width = is_all ? labels.size() : is_pair ? 2 : 1;
    output.values.reserve(count * output.width);
    for (size_t row = 0; row < count; ++row) {
      const float* score = scores + row * labels.size();
      if (is_all) {
        output.values.insert(output.values.end(), score, score + labels.size());
        continue;
      }
      if (is_pair) output.values.push_back(1.0f - score[at]);
      output.values.push_back(score[at]);
    }
  }
  return outputs;
}

}  // namespace elasticctr::serve::paddle
